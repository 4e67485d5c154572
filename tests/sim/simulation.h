// Simulation: a real client session, real rpc and a real server session in one process, over
// connections that misbehave by a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/sim.h"
#include "wire/hello.h"

namespace flyt::sim {

// One session to be played.
struct Plan {
  std::uint64_t seed = 1;  // Chooses the calls.
  int calls = 0;           // Made one after another, checking what comes back.
  transport::SimOptions main;
  // Further connections for bulk data, as many as these. With any the program makes copies that
  // are large enough for them.
  std::vector<transport::SimOptions> lanes;
  wire::LanePacking packing = wire::LanePacking::kAuto;
};

// What a program did over one session.
struct Outcome {
  bool opened = false;
  int calls = 0;
  int errors = 0;
  int successes_after_an_error = 0;
  int wrong_results = 0;
  std::uint64_t lane_bytes_to_server = 0;
  std::uint64_t lane_bytes_to_client = 0;
  bool finished = false;  // Nobody hung.
  std::string server_reason;
};

Outcome simulate(const Plan& plan);

}  // namespace flyt::sim
