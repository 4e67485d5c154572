#include "control/node/node_thread.h"

#include <atomic>
#include <thread>

#include "base/listening.h"
#include "control/daemon/page_token.h"
#include "control/daemon/stop_signals.h"
#include "control/node/api_thread.h"
#include "control/node/cluster_thread.h"
#include "control/node/manager.h"
#include "control/node/pages.h"

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

}  // namespace

Status run_node(const Config& config, std::string_view version, const Fd& signals,
                bool end_leases) {
  const Log log("node", log_level_of(config.log_level, LogLevel::kInfo));
  Manager manager(config, log);
  if (Status status = manager.start(); !status) return status;
  auto api = ApiThread::start(config, manager, log, version);
  if (!api) return std::move(api).error();
  std::unique_ptr<control::Pages> pages;
  if (!config.metrics.empty()) {
    control::PageMap map = pages_of(manager);
    map.admit = control::admit_token(config.metrics_token);
    auto started = control::Pages::start(*parse_address(config.metrics), std::move(map));
    if (!started) {
      const Error error = with_listening_advice(started.error(), "metrics.listen");
      return Error{error.code, "metrics.listen: " + error.message};
    }
    pages = std::move(*started);
  }
  std::unique_ptr<ClusterThread> cluster;
  if (!config.clusters.empty()) {
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
    control::await_stop(signals, [&manager] { manager.upgrade(); });
    log.info("stopping", {{"end_leases", end_leases}});
  }
  manager.stop(end_leases);
  return {};
}

}  // namespace flyt::node
