// What tests that fork beside threads need: before it, and to wait for the child.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
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

// As waitpid() tells it; nothing of a child that hangs, which is killed after a minute, and where
// there is none.
inline std::optional<int> status_of(pid_t child) {
  if (child < 0) return std::nullopt;
  const Instant end = system_clock().now() + std::chrono::minutes(1);
  int status = 0;
  while (system_clock().now() < end) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended != 0) return ended == child ? std::optional(status) : std::nullopt;
    std::this_thread::yield();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return std::nullopt;
}

}  // namespace flyt
