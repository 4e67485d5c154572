#include "server/nvml/monitor_process.h"

#include "rpc/buffer_pool.h"
#include "server/nvml/monitor.h"
#include "server/parent/greet.h"
#include "transport/machine.h"

namespace flyt::server::nvml {
void serve_monitor(std::unique_ptr<transport::Connection> connection,
                   const wire::ClientHello& hello, const SessionOptions& options) {
  const Log log("server", options.log_level);
  const std::string peer = connection->peer();
  const std::string machine = transport::machine_of(*connection);
  const auto limits = greet_without_session(*connection, hello, *options.fleet);
  if (!limits) {
    LimitedLog(log, options.lines->refusals())
        .info("client refused", {{"peer", peer}, {"reason", limits.error().message}});
    return;
  }
  log.debug("monitor started", {{"client_pid", hello.process_id},
                                {"client", hello.name},
                                {"peer", peer},
                                {"machine", machine}});
  if (options.board) {
    options.board->slot(options.slot)
        .publish({.process = hello.process_id,
                  .machine = machine,
                  .name = hello.name,
                  .kind = SessionKind::kMonitor});
  }
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
