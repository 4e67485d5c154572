#include "control/cluster/cluster_threads.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "control/cluster/api_thread.h"
#include "control/cluster/council_threads.h"
#include "control/cluster/enrol_thread.h"
#include "control/cluster/node_links.h"
#include "control/cluster/pages.h"
#include "control/cluster/requirements_task.h"
#include "control/cluster/sqlite_store.h"
#include "control/cluster/workers.h"
#include "control/daemon/stop_signals.h"

namespace flyt::cluster {
namespace {

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
  if (uses_etcd(config)) return run_council(config, version, signals, gate, log);
  const std::string path = config.state_folder + "/cluster.db";
  auto store = SqliteStore::open(path);
  if (!store) return std::move(store).error();
  const auto tasks = tasks_of(config, log);
  if (!tasks) return tasks.error();
  LastResort last_resort(log);
  NodeLinks links(config);
  Manager manager(config, log, std::move(*store), links, system_clock());
  if (Status status = manager.start(); !status) {
    const Error& error = status.error();
    return error.code == ErrorCode::kInvalid ? unusable_store(path, error.message) : error;
  }
  OnlyChair chair(manager);
  auto api = ApiThread::start(config, chair, gate, log, version);
  if (!api) return std::move(api).error();
  const auto enrol = EnrolThread::start(config, chair, log);
  if (!enrol) return enrol.error();
  const auto pages = ClusterPages::start(config, pages_of(manager), chair, gate, log, version);
  if (!pages) return pages.error();
  Workers workers(*tasks);
  workers.serve(manager);
  log.info("serving", {{"unix", config.api_unix},
                       {"tcp", config.api_tcp},
                       {"metrics", config.metrics},
                       {"page", config.page},
                       {"enrol", config.enrol},
                       {"nodes", manager.describe().nodes()}});
  control::await_stop(signals);
  log.info("stopping");
  manager.stop();
  last_resort.arm();
  return {};
}

}  // namespace flyt::cluster
