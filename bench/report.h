// Report: one table for people, one JSON file for programs.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/figures.h"

namespace flyt::bench {

// What one transport makes of it, and what it needs by itself (nothing for shared memory).
struct Remote {
  std::string name;
  Figures figures;
  Figures raw;
};

struct Measured {
  std::string driver;   // What native is.
  std::string machine;  // Processor, kernel, cores.
  std::string date;
  std::string delay;  // Added to each direction of the remote connections; empty: none.
  Figures native;
  std::vector<Remote> remotes;
};

std::string table_of(const Measured& measured);
Status write_json(const Measured& measured, const std::string& path);

}  // namespace flyt::bench
