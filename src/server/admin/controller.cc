#include "server/admin/controller.h"

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "server/admin_handlers.h"

namespace flyt::server::admin {
namespace {

// How often an idle controller wakes; nothing depends on it.
constexpr Duration kTurn = std::chrono::seconds(10);

}  // namespace

std::string Controller::run() {
  rpc::Endpoint& endpoint = parts_.endpoint;
  while (endpoint.receive(*this, system_clock().now() + kTurn) != rpc::Received::kClosed) {
  }
  return endpoint.closed_in_order() ? std::string("peer left") : endpoint.error().message;
}

Status Controller::on_command(const rpc::Command& command) {
  const HandlerRow* row = find_handler(command.header.op);
  if (row == nullptr || row->run == nullptr) {
    return Error{ErrorCode::kInvalid,
                 "a control has no command " + std::to_string(command.header.op)};
  }
  if (row->waits != command.wants_reply()) {
    return Error{ErrorCode::kInvalid, std::string(row->name) + " with the wrong kind of answer"};
  }
  row->run(Request(*this, command));
  if (!std::exchange(wake_, false)) return {};
  const std::uint64_t one = 1;
  // A counter that is full wakes as well.
  [[maybe_unused]] const ssize_t written = ::write(parts_.wake, &one, sizeof one);
  return {};
}

}  // namespace flyt::server::admin
