// Simulation: a real client session, real rpc and a real server session in one process, over a
// connection that misbehaves by a seed.
#pragma once

#include <cstdint>
#include <string>

#include "transport/sim.h"

namespace flyt::sim {

// What a program did over one session.
struct Outcome {
  bool opened = false;
  int calls = 0;
  int errors = 0;
  int successes_after_an_error = 0;
  int wrong_results = 0;
  bool finished = false;  // Nobody hung.
  std::string server_reason;
};

// Runs `calls` calls that `seed` chooses, one after another, checking what comes back.
Outcome simulate(std::uint64_t seed, const transport::SimOptions& options, int calls);

}  // namespace flyt::sim
