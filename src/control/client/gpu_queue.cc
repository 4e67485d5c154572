#include "control/client/gpu_queue.h"

#include "rpc/desk.h"

namespace flyt::control {
namespace {

// A node takes less to start a server.
constexpr Duration kQuiet = std::chrono::milliseconds(500);
constexpr Duration kStatusPatience = std::chrono::seconds(5);

}  // namespace

bool has_client_manager() { return rpc::has_desk(rpc::desk_socket()); }

Status await_gpu(Duration patience, const std::function<void(const GpuQueue&)>& tell) {
  const auto on_waiting = [&](const wire::DeskWaiting& news) { tell({news.ahead, news.why}); };
  const std::string socket = rpc::desk_socket();
  const auto visit =
      rpc::visit_desk(socket, wire::DeskPurpose::kAwait, {patience, kQuiet}, on_waiting);
  return visit ? Status() : Status(visit.error());
}

Result<std::string> client_manager_status() {
  const std::string socket = rpc::desk_socket();
  if (!rpc::has_desk(socket)) {
    return Error{ErrorCode::kNotFound,
                 "no client manager listens at " + socket +
                     "; start flyt-client-manager, or name"
                     " the socket of the one that runs in FLYT_CLIENT_SOCKET"};
  }
  return rpc::ask_desk_status(socket, kStatusPatience);
}

}  // namespace flyt::control
