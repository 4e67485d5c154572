#include "control/cluster/council_threads.h"

#include <atomic>
#include <thread>

#include "base/annotations.h"
#include "control/cluster/api_thread.h"
#include "control/cluster/council.h"
#include "control/cluster/enrol_thread.h"
#include "control/cluster/node_links.h"
#include "control/cluster/pages.h"
#include "control/cluster/records.h"
#include "control/cluster/requirements_task.h"
#include "control/cluster/workers.h"
#include "control/daemon/stop_signals.h"
#include "control/etcd/etcd_client.h"

namespace flyt::cluster {
namespace {

constexpr Duration kStep = std::chrono::milliseconds(200);

// What a thread waits for that has to be woken.
class Bell {
 public:
  void ring() {
    {
      const Lock lock(mutex_);
      rung_ = true;
    }
    changed_.notify_all();
  }
  void wait(Duration patience) {
    std::unique_lock<Mutex> lock(mutex_);
    static_cast<void>(changed_.wait_for(lock, patience, [this] { return rung_; }));
    rung_ = false;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool rung_ GUARDED_BY(mutex_) = false;
};

// Steps a council, from its making to its end.
class Stepper {
 public:
  Stepper(Council& council, Bell& bell)
      : council_(council), bell_(bell), thread_([this] { run(); }) {}
  ~Stepper() {
    stopping_ = true;
    bell_.ring();
    thread_.join();
  }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

 private:
  void run() {
    while (!stopping_) {
      council_.step();
      bell_.wait(kStep);
    }
    council_.stop();
  }

  Council& council_;
  Bell& bell_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

Candidate::Settings settings_of(const Config& config) {
  Candidate::Settings settings;
  settings.prefix = config.etcd_prefix;
  settings.seconds = config.etcd_lease_seconds;
  settings.self.set_name(config.name);
  settings.self.set_address(config.advertise);
  settings.self.set_instance(new_id());
  return settings;
}

}  // namespace

Status run_council(const Config& config, std::string_view version, const Fd& signals, Gate& gate,
                   const Log& log) {
  const auto members = control::parse_etcd_url(config.store);
  if (!members) return members.error();
  const auto etcd = control::connect_to_etcd(*members, config.etcd_tls);
  if (!etcd) return etcd.error();
  const auto tasks = tasks_of(config, log);
  if (!tasks) return tasks.error();
  LastResort last_resort(log);
  NodeLinks links(config);
  Workers workers(*tasks);
  Bell bell;
  EtcdCopy copy(**etcd, config.etcd_prefix, [&bell] { bell.ring(); });
  Council council(
      **etcd, system_clock(), log, settings_of(config),
      [&](std::unique_ptr<Store> store) {
        return std::make_shared<Manager>(config, log, std::move(store), links, system_clock());
      },
      [&workers](const std::shared_ptr<Manager>& manager) { workers.serve(manager); }, &copy);
  // Whoever is elected can be reached.
  auto api = ApiThread::start(config, council, gate, log, version);
  if (!api) return std::move(api).error();
  const auto enrol = EnrolThread::start(config, council, log);
  if (!enrol) return enrol.error();
  const auto pages = ClusterPages::start(config, pages_of(council), council, gate, log, version);
  if (!pages) return pages.error();
  auto stepper = std::make_unique<Stepper>(council, bell);
  log.info("serving", {{"unix", config.api_unix},
                       {"tcp", config.api_tcp},
                       {"metrics", config.metrics},
                       {"page", config.page},
                       {"enrol", config.enrol},
                       {"store", config.store},
                       {"name", config.name}});
  control::await_stop(signals);
  log.info("stopping");
  last_resort.arm();
  stepper.reset();
  return {};
}

}  // namespace flyt::cluster
