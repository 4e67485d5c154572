// Monitor: answers one client's questions about the GPUs. It has no context and no memory of any.
#pragma once

#include <string>
#include <utility>

#include "base/log.h"
#include "rpc/endpoint.h"
#include "server/lease/usage_board.h"
#include "server/nvml/fleet.h"
#include "server/nvml/native.h"

namespace flyt::server::nvml {

// All of it outlives the monitor.
struct MonitorParts {
  rpc::Endpoint& endpoint;
  const Fleet& fleet;
  const Native& native;
  const UsageBoard* board = nullptr;
  std::string machine;  // The client's: it sees the processes of this one.
};

// Belongs to one thread.
class Monitor final : public rpc::CommandHandler {
 public:
  explicit Monitor(MonitorParts parts) : parts_(std::move(parts)) {}

  // Serves until the client leaves, is lost or breaks a rule; the reason for the log.
  std::string run();
  Status on_command(const rpc::Command& command) override;

  const MonitorParts& parts() const { return parts_; }

 private:
  MonitorParts parts_;
};

}  // namespace flyt::server::nvml
