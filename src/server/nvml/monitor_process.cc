#include "server/nvml/monitor_process.h"

#include <unistd.h>

#include "commands/ops.h"
#include "rpc/buffer_pool.h"
#include "server/nvml/monitor.h"
#include "transport/machine.h"

namespace flyt::server::nvml {
namespace {

constexpr Duration kWelcomeTime = std::chrono::seconds(30);

// Agrees on versions and limits, or refuses.
Result<wire::Limits> greet(transport::Connection& connection, const wire::ClientHello& hello,
                           const Fleet& fleet) {
  const Instant deadline = system_clock().now() + kWelcomeTime;
  const auto refuse = [&](wire::RefusalCode code, const Error& error) {
    static_cast<void>(rpc::send_refusal(connection, {code, error.message}, deadline).ok());
    return error;
  };
  const auto version = wire::common_version(hello.version_min, hello.version_max);
  if (!version) return refuse(wire::RefusalCode::kVersion, version.error());
  const auto limits = wire::common_limits(wire::Limits{}, hello.limits);
  if (!limits) return refuse(wire::RefusalCode::kMalformed, limits.error());
  wire::Welcome welcome;
  welcome.version = *version;
  welcome.name = "flyt-server";
  welcome.process_id = static_cast<std::uint32_t>(::getpid());
  welcome.driver = fleet.driver_kind;
  welcome.driver_version = static_cast<std::uint32_t>(fleet.cuda_version);
  welcome.limits = *limits;
  welcome.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
  if (Status sent = rpc::send_welcome(connection, welcome, deadline); !sent) {
    return std::move(sent).error();
  }
  return *limits;
}

}  // namespace

void serve_monitor(std::unique_ptr<transport::Connection> connection,
                   const wire::ClientHello& hello, const SessionOptions& options) {
  const Log log("server", options.log_level);
  const std::string peer = connection->peer();
  const std::string machine = transport::machine_of(*connection);
  const auto limits = greet(*connection, hello, *options.fleet);
  if (!limits) {
    log.info("client refused", {{"peer", peer}, {"reason", limits.error().message}});
    return;
  }
  log.debug("monitor started", {{"client_pid", hello.process_id},
                                {"client", hello.name},
                                {"peer", peer},
                                {"machine", machine}});
  const Native native(*options.fleet, log);
  rpc::HeapBufferPool pool;
  rpc::Endpoint endpoint(std::move(connection), *limits, pool);
  Monitor monitor({.endpoint = endpoint,
                   .fleet = *options.fleet,
                   .native = native,
                   .board = options.board.get(),
                   .machine = machine});
  const std::string reason = monitor.run();
  log.debug("monitor ended", {{"client_pid", hello.process_id}, {"reason", reason}});
}

}  // namespace flyt::server::nvml
