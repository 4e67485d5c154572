// Request: one command of whoever controls the server, and the way to answer it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "admin/types.h"
#include "base/bytes.h"
#include "rpc/endpoint.h"
#include "server/admin/controller.h"
#include "wire/fields.h"

namespace flyt::server::admin {

// Lives while its command is handled, and is answered once. Destroyed unanswered, it answers
// FLYT_ADMIN_FAILED: nobody waits in vain.
class Request {
 public:
  Request(Controller& controller, const rpc::Command& command)
      : controller_(&controller), sequence_(command.header.sequence), payload_(command.payload) {}
  Request(Request&& other) noexcept;
  Request& operator=(Request&&) = delete;
  ~Request();

  Controller& controller() const { return *controller_; }
  const ControllerParts& parts() const { return controller_->parts(); }

  // Reads the payload. False: the connection has been ended, the handler just returns.
  template <class Command>
  bool decode(Command& command) {
    if (wire::decode(payload_, command)) return true;
    end_malformed(Command::kName);
    return false;
  }

  void reply(FlytAdminResult result) { send(result, {}); }
  // Views in the fields need to live only during this call. A refusal has fields, too: what holds
  // is told with it.
  template <class Reply>
  void reply(FlytAdminResult result, const Reply& fields) {
    std::vector<std::byte> bytes(wire::encoded_size(fields));
    Writer writer(bytes);
    wire::encode(writer, fields);
    send(result, bytes);
  }

 private:
  void send(FlytAdminResult result, Bytes fields);
  void end_malformed(std::string_view command);

  Controller* controller_;
  std::uint64_t sequence_;
  Bytes payload_;
  bool answered_ = false;
};

}  // namespace flyt::server::admin
