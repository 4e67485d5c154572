// wait_until_other_threads_sleep(): what comes before a fork in a process that has threads.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.h"

namespace flyt {

inline bool other_threads_sleep() {
  const std::string own = std::to_string(::gettid());
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    if (thread.path().filename() == own) continue;
    std::ifstream file(thread.path() / "stat");
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    if (stat.find(") S ") == stat.npos) return false;
  }
  return !error;
}

// A minute at the most. The locks of AddressSanitizer's allocator know nothing of forks: for one
// that another thread holds in that moment the child waits for ever. A thread that sleeps holds
// none.
inline void wait_until_other_threads_sleep() {
  const Instant end = system_clock().now() + std::chrono::minutes(1);
  while (!other_threads_sleep() && system_clock().now() < end) std::this_thread::yield();
}

}  // namespace flyt
