// Recovery: how long a program waits whose session's process was killed while nothing was under
// way.
#pragma once

#include <cstdint>
#include <string>

namespace flyt::bench {

struct RecoveryOptions {
  std::string driver = "soft";  // Of the server: soft or the path of a libcuda.
  std::uint64_t mebibytes = 256;
  int rounds = 5;
};

// Prints a table, a line for each transport; the exit status. On a real GPU the server keeps a warm
// process, as it would in service.
int measure_recovery(const RecoveryOptions& options);

// The program whose session is killed; the exit status.
int run_recovery_client(std::uint64_t mebibytes);

}  // namespace flyt::bench
