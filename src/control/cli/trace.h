// Trace: runs a program as `flyt run` does, and tells what it called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/cli/launcher.h"

namespace flyt::cli {

struct TraceOptions {
  RunOptions run;
  std::vector<std::string> recordings;  // Read these instead of running anything.
  std::string output;                   // Of the report; empty: stderr, or stdout when reading.
  std::string chrome;                   // A trace-event file; empty: none.
  std::uint64_t events_max = 500'000;   // Calls that it holds of each process.
  bool json = false;
};

// Returns the program's exit status (128 + N after signal N). The report is written however the
// program ended. An error means that the program did not run, or that the report could not be
// written.
Result<int> trace(const TraceOptions& options);

}  // namespace flyt::cli
