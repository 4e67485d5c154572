#include "control/cluster/pages_thread.h"

#include <httplib.h>

#include "control/cluster/metrics.h"

namespace flyt::cluster {
namespace {

constexpr std::size_t kThreads = 2;
constexpr std::size_t kRequestBytesMax = 64 << 10;

std::string metrics(Manager& manager) {
  const auto nodes = manager.nodes("");
  const auto vms = manager.vms("");
  return metrics_text(manager.describe(), nodes ? *nodes : v1::ListNodesResponse(),
                      vms ? *vms : v1::ListVmsResponse(), manager.counters(),
                      manager.problems().empty());
}

}  // namespace

Result<std::unique_ptr<PagesThread>> PagesThread::start(const control::Address& address,
                                                        Manager& manager) {
  auto server = std::make_unique<httplib::Server>();
  server->new_task_queue = [] { return std::make_unique<httplib::ThreadPool>(kThreads).release(); };
  server->set_payload_max_length(kRequestBytesMax);
  server->set_read_timeout(5);
  server->Get("/metrics", [&manager](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics(manager), "text/plain; version=0.0.4");
  });
  server->Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", "text/plain");
  });
  // Ready: the state can be written, and some node takes virtual GPUs.
  server->Get("/readyz", [&manager](const httplib::Request&, httplib::Response& response) {
    const bool able = manager.writable();
    const bool ready = able && manager.describe().nodes_ready() != 0;
    response.status = ready ? 200 : 503;
    response.set_content(ready  ? "ok\n"
                         : able ? "no node takes virtual GPUs\n"
                                : "the state cannot be written\n",
                         "text/plain");
  });
  if (!server->bind_to_port(address.host.c_str(), address.port)) {
    return Error{ErrorCode::kSystem, "metrics.listen: cannot listen on " + address.host + ":" +
                                         std::to_string(address.port)};
  }
  return std::make_unique<PagesThread>(std::move(server));
}

PagesThread::PagesThread(std::unique_ptr<httplib::Server> server)
    : server_(std::move(server)), thread_([this] { server_->listen_after_bind(); }) {}

PagesThread::~PagesThread() {
  // One that is not yet running would not notice.
  const Instant deadline = system_clock().now() + std::chrono::seconds(1);
  while (!server_->is_running() && system_clock().now() < deadline) {
    system_clock().sleep_for(std::chrono::milliseconds(1));
  }
  server_->stop();
  thread_.join();
}

}  // namespace flyt::cluster
