#include "control/cluster/workers.h"

#include <cstdlib>

namespace flyt::cluster {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(500);
constexpr std::size_t kWorkers = 32;
constexpr Duration kEndTime = std::chrono::seconds(5);

void work(Manager& manager) {
  while (!manager.stopping()) {
    if (const auto job = manager.next_job(std::chrono::seconds(1))) manager.run(*job);
  }
}

void watch_time(Manager& manager) {
  while (!manager.stopping()) {
    manager.tick();
    system_clock().sleep_for(kTick);
  }
}

}  // namespace

Workers::~Workers() {
  for (const auto& crew : crews_) {
    for (std::thread& thread : crew->threads) thread.join();
  }
}

void Workers::serve(Manager& manager) {
  crews_.push_back(std::make_unique<Crew>());
  hire(manager, *crews_.back());
}

void Workers::serve(const std::shared_ptr<Manager>& manager) {
  forget_idle();
  crews_.push_back(std::make_unique<Crew>());
  crews_.back()->manager = manager;
  hire(*manager, *crews_.back());
}

// One that asks a node that hangs is kept: its manager is.
void Workers::forget_idle() {
  std::erase_if(crews_, [](const std::unique_ptr<Crew>& crew) {
    if (crew->busy != 0) return false;
    for (std::thread& thread : crew->threads) thread.join();
    return true;
  });
}

void Workers::hire(Manager& manager, Crew& crew) {
  crew.busy = kWorkers + 1 + tasks_.size();
  for (const auto& task : tasks_) {
    crew.threads.emplace_back([&manager, &crew, &task] {
      task(manager);
      --crew.busy;
    });
  }
  for (std::size_t i = 0; i <= kWorkers; ++i) {
    crew.threads.emplace_back([&manager, &crew, first = i == 0] {
      if (first) {
        watch_time(manager);
      } else {
        work(manager);
      }
      --crew.busy;
    });
  }
}

LastResort::~LastResort() {
  {
    const Lock lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LastResort::arm() {
  thread_ = std::thread([this] { wait(); });
}

void LastResort::wait() {
  std::unique_lock<Mutex> lock(mutex_);
  if (changed_.wait_for(lock, kEndTime, [this] { return done_; })) return;
  log_.warn(
      "a node, or MongoDB, does not answer; what it was asked for is found out at the next start");
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace flyt::cluster
