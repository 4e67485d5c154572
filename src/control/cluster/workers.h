// Workers: the threads that do what a manager has to do.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "base/log.h"
#include "control/cluster/manager.h"

namespace flyt::cluster {

// Those who ask nodes, and one that watches the time, for each manager until that is told to stop.
// One thread's.
class Workers {
 public:
  // What else is to be done for a manager that decides, each on a thread of its own, until it
  // stops.
  using Tasks = std::vector<std::function<void(Manager&)>>;
  explicit Workers(Tasks tasks = {}) : tasks_(std::move(tasks)) {}
  // Waits for them: all managers have been told to stop.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // The manager outlives its workers.
  void serve(Manager& manager);
  void serve(const std::shared_ptr<Manager>& manager);

 private:
  struct Crew {
    std::shared_ptr<Manager> manager;  // Kept for them.
    std::vector<std::thread> threads;
    std::atomic<std::size_t> busy = 0;
  };
  void forget_idle();
  void hire(Manager& manager, Crew& crew);

  const Tasks tasks_;
  std::vector<std::unique_ptr<Crew>> crews_;
};

// Calls to nodes that hang cannot be ended; a while after arm() the process ends without them. All
// that it knows is on disk: the next manager finds out what has become of them.
class LastResort {
 public:
  explicit LastResort(const Log& log) : log_(log) {}
  ~LastResort();
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;

  void arm();

 private:
  void wait();

  const Log log_;
  Mutex mutex_;
  Condition changed_;
  bool done_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace flyt::cluster
