// Survivor: a CUDA program that does what it is told line by line, and knows what its memory holds.
#pragma once

#include <cstdint>
#include <string>

namespace flyt::tests {

// Reads commands from its input until that ends, and answers each with a line: "ok", a CUresult or
// what is wrong. See survivor.cc for them. `job`: what it has beside the usual.
int run_survivor(const std::string& job, std::uint64_t seed);

}  // namespace flyt::tests
