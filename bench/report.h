// Report: one table for people, one JSON file for programs.
#pragma once

#include <string>

#include "base/result.h"
#include "bench/figures.h"

namespace flyt::bench {

struct Measured {
  std::string driver;   // What native is.
  std::string machine;  // Processor, kernel, cores.
  std::string date;
  std::string delay;  // Added to each direction of the remote connections; empty: none.
  Figures native;
  Figures unix_remote;
  Figures tcp_remote;
  Figures unix_raw;
  Figures tcp_raw;
};

std::string table_of(const Measured& measured);
Status write_json(const Measured& measured, const std::string& path);

}  // namespace flyt::bench
