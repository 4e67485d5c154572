// Supervisor: runs the tests in worker processes, so that a crash, a hang or a broken context
// costs one test and not the run.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/lists.h"

namespace flyt::conformance {

struct SupervisorOptions {
  std::string driver = "soft";
  std::string lists;
  int deadline_seconds = 150;  // For one test.
  bool verbose = false;        // Workers print every test, not only failures.
};

// Tests of suites whose name ends so run alone in a worker: they change what the whole process
// sees, or break a context on purpose.
inline constexpr const char* kAlone = "Alone";

// Runs every test that gtest's filter selects; prints a summary; 0 if all went as the lists say.
int supervise(const SupervisorOptions& options);

// The worker's side: reports to the descriptor in FLYT_CONFORMANCE_WORKER; runs gtest's selection.
bool is_worker();
int work();

}  // namespace flyt::conformance
