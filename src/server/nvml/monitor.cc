#include "server/nvml/monitor.h"

#include "server/nvml_handlers.h"

namespace flyt::server::nvml {
namespace {

// How often an idle monitor wakes; nothing depends on it.
constexpr Duration kTurn = std::chrono::seconds(10);

}  // namespace

std::string Monitor::run() {
  rpc::Endpoint& endpoint = parts_.endpoint;
  while (endpoint.receive(*this, system_clock().now() + kTurn) != rpc::Received::kClosed) {
  }
  return endpoint.closed_in_order() ? std::string("client left") : endpoint.error().message;
}

Status Monitor::on_command(const rpc::Command& command) {
  const HandlerRow* row = find_handler(command.header.op);
  if (row == nullptr || row->run == nullptr) {
    return Error{ErrorCode::kInvalid,
                 "a monitor has no command " + std::to_string(command.header.op)};
  }
  if (row->waits != command.wants_reply()) {
    return Error{ErrorCode::kInvalid, std::string(row->name) + " with the wrong kind of answer"};
  }
  row->run(Request(*this, command));
  return {};
}

}  // namespace flyt::server::nvml
