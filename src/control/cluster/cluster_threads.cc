#include "control/cluster/cluster_threads.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "control/cluster/api_thread.h"
#include "control/cluster/node_links.h"
#include "control/cluster/pages.h"
#include "control/cluster/sqlite_store.h"
#include "control/daemon/stop_signals.h"

namespace flyt::cluster {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(500);
constexpr std::size_t kWorkers = 32;
constexpr Duration kEndTime = std::chrono::seconds(5);

// Those who ask nodes, and one that watches the time.
class Workers {
 public:
  explicit Workers(Manager& manager) : manager_(manager) {
    for (std::size_t i = 0; i < kWorkers; ++i) threads_.emplace_back([this] { work(); });
    threads_.emplace_back([this] { watch_time(); });
  }
  // The manager has been stopped before.
  ~Workers() {
    for (std::thread& thread : threads_) thread.join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

 private:
  void work() {
    while (!manager_.stopping()) {
      if (const auto job = manager_.next_job(std::chrono::seconds(1))) manager_.run(*job);
    }
  }
  void watch_time() {
    while (!manager_.stopping()) {
      manager_.tick();
      system_clock().sleep_for(kTick);
    }
  }

  Manager& manager_;
  std::vector<std::thread> threads_;
};

// Calls to nodes that hang cannot be ended; after a while the process ends without them. All that
// it knows is on disk: the next manager finds out what has become of them.
class LastResort {
 public:
  explicit LastResort(const Log& log) : log_(log) {}
  ~LastResort() {
    {
      const Lock lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;

  void arm() {
    thread_ = std::thread([this] { wait(); });
  }

 private:
  void wait() {
    std::unique_lock<Mutex> lock(mutex_);
    if (changed_.wait_for(lock, kEndTime, [this] { return done_; })) return;
    log_.warn("a node does not answer; what it was asked for is found out at the next start");
    std::_Exit(EXIT_SUCCESS);
  }

  const Log log_;
  Mutex mutex_;
  Condition changed_;
  bool done_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

Status make_folder(const std::string& path, unsigned mode) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (::mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  return system_error("cannot make " + path, errno);
}

}  // namespace

Status run_cluster(const Config& config, std::string_view version, const Fd& signals) {
  const Log log("cluster", log_level_of(config.log_level, LogLevel::kInfo));
  Gate gate(config);
  if (Status status = gate.check(); !status) return status;
  const bool others = !config.operators.empty() || !config.viewers.empty();
  for (const auto& [folder, mode] : {std::pair(config.state_folder, 0700u),
                                     std::pair(config.run_folder, others ? 0711u : 0700u)}) {
    if (Status status = make_folder(folder, mode); !status) return status;
  }
  const std::string path = config.state_folder + "/cluster.db";
  auto store = SqliteStore::open(path);
  if (!store) return std::move(store).error();
  LastResort last_resort(log);
  NodeLinks links(config);
  Manager manager(config, log, std::move(*store), links, system_clock());
  if (Status status = manager.start(); !status) {
    const Error& error = status.error();
    return error.code == ErrorCode::kInvalid ? unusable_store(path, error.message) : error;
  }
  auto api = ApiThread::start(config, manager, gate, log, version);
  if (!api) return std::move(api).error();
  std::unique_ptr<control::Pages> pages;
  if (!config.metrics.empty()) {
    auto started =
        control::Pages::start(*control::parse_address(config.metrics), pages_of(manager));
    if (!started) return std::move(started).error();
    pages = std::move(*started);
  }
  const Workers workers(manager);
  log.info("serving", {{"unix", config.api_unix},
                       {"tcp", config.api_tcp},
                       {"metrics", config.metrics},
                       {"nodes", manager.describe().nodes()}});
  control::await_stop(signals);
  log.info("stopping");
  manager.stop();
  last_resort.arm();
  return {};
}

}  // namespace flyt::cluster
