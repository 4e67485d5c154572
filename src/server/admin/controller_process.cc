#include "server/admin/controller_process.h"

#include <unistd.h>

#include <string>

#include "rpc/buffer_pool.h"
#include "server/admin/controller.h"
#include "server/parent/greet.h"

namespace flyt::server::admin {

bool may_control(const transport::Connection& connection) {
  const std::string identity = transport::identity_of_peer(connection.fd());
  return identity == "unix-0" || identity == "unix-" + std::to_string(::geteuid());
}

void serve_control(std::unique_ptr<transport::Connection> connection, const SessionOptions& options,
                   std::uint32_t sessions_max, int wake) {
  const auto hello = hear_client(*connection, options);
  if (!hello) return;
  const Log log("control", options.log_level);
  const LimitedLog refusals(log, options.lines->refusals());
  const std::string peer = connection->peer();
  if (hello->role != wire::ConnectionRole::kAdmin) {
    constexpr std::string_view kReason = "this socket is for controlling the server";
    const Instant deadline = system_clock().now() + kWelcomeTime;
    static_cast<void>(
        rpc::send_refusal(*connection, {wire::RefusalCode::kDenied, std::string(kReason)}, deadline)
            .ok());
    refusals.info("peer refused", {{"peer", peer}, {"reason", kReason}});
    return;
  }
  const auto limits = greet_without_session(*connection, *hello, *options.fleet);
  if (!limits) {
    refusals.info("peer refused", {{"peer", peer}, {"reason", limits.error().message}});
    return;
  }
  log.debug("control started", {{"peer_pid", hello->process_id}, {"peer", hello->name}});
  rpc::HeapBufferPool pool;
  rpc::Endpoint endpoint(std::move(connection), *limits, pool);
  Controller controller({.endpoint = endpoint,
                         .log = log,
                         .lease = options.lease,
                         .fleet = *options.fleet,
                         .board = *options.board,
                         .admission = options.admission.get(),
                         .sessions_max = sessions_max,
                         .wake = wake});
  const std::string reason = controller.run();
  log.debug("control ended", {{"peer_pid", hello->process_id}, {"reason", reason}});
}

}  // namespace flyt::server::admin
