// stop_process(): a process that does nothing more until it is told to go on.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "tests/support/server_process.h"

namespace flyt::tests {

// Whether all threads of it have stopped.
inline bool has_stopped(pid_t process) {
  std::error_code error;
  const std::string folder = "/proc/" + std::to_string(process) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(folder, error)) {
    std::ifstream file(thread.path() / "stat");
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    if (stat.find(") T ") == stat.npos) return false;
  }
  return !error;
}

// Returns when that holds: who sends the signal does not wait for it, and on a busy machine some
// threads go on for a while.
inline bool stop_process(pid_t process) {
  // Others would be whole groups of processes.
  return process > 1 && ::kill(process, SIGSTOP) == 0 &&
         eventually(60, [process] { return has_stopped(process); });
}

}  // namespace flyt::tests
