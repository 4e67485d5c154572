#include "control/node/node_thread.h"

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "control/node/api_thread.h"
#include "control/node/cluster_thread.h"
#include "control/node/manager.h"
#include "control/node/pages_thread.h"

namespace flyt::node {
namespace {

constexpr Duration kTick = std::chrono::seconds(5);

// Runs Manager::tick().
class Ticker {
 public:
  explicit Ticker(Manager& manager) : manager_(manager), thread_([this] { run(); }) {}
  ~Ticker() {
    stopping_ = true;
    manager_.wake();
    thread_.join();
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void run() {
    while (!stopping_) manager_.tick(kTick);
  }

  Manager& manager_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

void wait_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  while (::poll(&entry, 1, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace

Status run_node(const Config& config, std::string_view version, int signals, bool end_leases) {
  const Log log("node", log_level_of(config.log_level, LogLevel::kInfo));
  Manager manager(config, log);
  if (Status status = manager.start(); !status) return status;
  auto api = ApiThread::start(config, manager, log, version);
  if (!api) return std::move(api).error();
  std::unique_ptr<PagesThread> pages;
  if (!config.metrics.empty()) {
    auto started = PagesThread::start(*parse_address(config.metrics), manager);
    if (!started) return std::move(started).error();
    pages = std::move(*started);
  }
  std::unique_ptr<ClusterThread> cluster;
  if (!config.cluster.empty()) {
    auto started = ClusterThread::start(config, manager, log, version);
    if (!started) return std::move(started).error();
    cluster = std::move(*started);
  }
  log.info("serving", {{"unix", config.api_unix},
                       {"tcp", config.api_tcp},
                       {"metrics", config.metrics},
                       {"gpus", manager.describe().gpus.size()}});
  {
    const Ticker ticker(manager);
    wait_readable(signals);
    log.info("stopping", {{"end_leases", end_leases}});
  }
  manager.stop(end_leases);
  return {};
}

}  // namespace flyt::node
