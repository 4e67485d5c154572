// Worker: measures one libcuda in a process of its own.
#pragma once

#include <string>

namespace flyt::bench {

enum class Work {
  kProbe,    // Only says whether the library finds a device.
  kStart,    // The first context of a process.
  kFigures,  // Everything else.
};

// Prints "name value" lines; the exit status of the process.
int run_worker(Work work, const std::string& library, bool quick);

}  // namespace flyt::bench
