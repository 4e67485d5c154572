#include "client/nvml/current.h"

#include <pthread.h>

#include <atomic>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "client/nvml/monitor.h"

namespace flyt::client::nvml {
namespace {

// Lives as long as the process: other threads may be inside calls when it exits.
struct Process {
  Mutex mutex;
  std::uint64_t uses GUARDED_BY(mutex) = 0;
  std::shared_ptr<Monitor> monitor GUARDED_BY(mutex);
  // Of parents, in a child: their locks may be held for ever, so they are only forgotten.
  std::vector<std::shared_ptr<Monitor>> abandoned GUARDED_BY(mutex);
  std::atomic_flag opening = ATOMIC_FLAG_INIT;  // Held while a monitor is opened.
};

Process& process();

void before_fork() NO_THREAD_SAFETY_ANALYSIS { process().mutex.lock(); }
void in_parent() NO_THREAD_SAFETY_ANALYSIS { process().mutex.unlock(); }
void in_child() NO_THREAD_SAFETY_ANALYSIS {
  Process& mine = process();
  if (mine.monitor != nullptr) {
    mine.monitor->abandon_after_fork();
    mine.abandoned.push_back(std::move(mine.monitor));
    mine.monitor = nullptr;
  }
  mine.opening.clear();
  mine.mutex.unlock();
}

Process& process() {
  static Process* const one = std::make_unique<Process>().release();
  static const int watched = ::pthread_atfork(&before_fork, &in_parent, &in_child);
  static_cast<void>(watched);
  return *one;
}

nvmlReturn_t result_of(const Error& error) {
  return error.code == ErrorCode::kUnsupported ? NVML_ERROR_LIB_RM_VERSION_MISMATCH
                                               : NVML_ERROR_DRIVER_NOT_LOADED;
}

// Makes sure that there is a monitor that is not lost, and counts `uses` more.
nvmlReturn_t connect(std::uint64_t uses) {
  Process& mine = process();
  while (mine.opening.test_and_set(std::memory_order_acquire)) mine.opening.wait(true);
  std::shared_ptr<Monitor> found;
  {
    const Lock lock(mine.mutex);
    found = mine.monitor;
  }
  nvmlReturn_t result = NVML_SUCCESS;
  if (found == nullptr || found->lost()) {
    auto opened = Monitor::open();
    result = opened ? NVML_SUCCESS : result_of(opened.error());
    if (opened) found = std::move(opened).value();
  }
  if (result == NVML_SUCCESS) {
    const Lock lock(mine.mutex);
    // What is lost ends behind the lock.
    std::swap(mine.monitor, found);
    mine.uses += uses;
  }
  mine.opening.clear(std::memory_order_release);
  mine.opening.notify_one();
  return result;
}

}  // namespace

nvmlReturn_t initialise() { return connect(1); }

nvmlReturn_t shut_down() {
  Process& mine = process();
  std::shared_ptr<Monitor> ended;
  {
    const Lock lock(mine.mutex);
    if (mine.uses == 0) return NVML_ERROR_UNINITIALIZED;
    if (--mine.uses == 0) ended = std::move(mine.monitor);
  }
  if (ended != nullptr) ended->close();
  return NVML_SUCCESS;
}

bool initialised() {
  Process& mine = process();
  const Lock lock(mine.mutex);
  return mine.uses != 0;
}

std::shared_ptr<Monitor> current_monitor() {
  Process& mine = process();
  {
    const Lock lock(mine.mutex);
    if (mine.uses == 0 || mine.monitor != nullptr) return mine.monitor;
  }
  if (connect(0) != NVML_SUCCESS) return nullptr;
  const Lock lock(mine.mutex);
  return mine.monitor;
}

}  // namespace flyt::client::nvml
