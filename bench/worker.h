// Worker: measures one libcuda in a process of its own.
#pragma once

#include <string>

namespace flyt::bench {

enum class Work {
  kProbe,    // Only says whether the library finds a device.
  kStart,    // The first context of a process.
  kFigures,  // Everything else.
  kRounds,   // What standard input asks for, again and again.
};

// Prints "name value" lines; the exit status of the process. kRounds: standard input has a line for
// each round, "launches" or "copies"; behind the figures of each comes the line "done 1", or "done
// 0" where it asked for nothing known. The end of the input ends the process.
int run_worker(Work work, const std::string& library, bool quick);

}  // namespace flyt::bench
