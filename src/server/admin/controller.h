// Controller: answers whoever controls this server. It has no driver; what only the server's parent
// can do it leaves on the board, and wakes the parent.
#pragma once

#include <string>

#include "base/log.h"
#include "rpc/endpoint.h"
#include "server/lease/lease.h"
#include "server/lease/usage_board.h"
#include "server/nvml/fleet.h"
#include "server/parent/admission.h"

namespace flyt::server::admin {

// All of it outlives the controller.
struct ControllerParts {
  rpc::Endpoint& endpoint;
  const Log& log;
  const LeaseOptions& lease;
  const nvml::Fleet& fleet;
  UsageBoard& board;
  const Admission* admission = nullptr;  // Null: clients need no token.
  std::uint32_t sessions_max = 0;
  int wake = -1;  // An eventfd of the parent's.
};

// Belongs to one thread.
class Controller final : public rpc::CommandHandler {
 public:
  explicit Controller(const ControllerParts& parts) : parts_(parts) {}

  // Serves until the peer leaves, is lost or breaks a rule; the reason for the log.
  std::string run();
  Status on_command(const rpc::Command& command) override;

  const ControllerParts& parts() const { return parts_; }
  // The parent looks at what was left for it, once the command is answered: it may end this
  // process.
  void wake_parent() { wake_ = true; }

 private:
  const ControllerParts parts_;
  bool wake_ = false;
};

}  // namespace flyt::server::admin
