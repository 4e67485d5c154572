// Allocations: how often this process, with the libraries that it loads, asks for memory.
#pragma once

#include <cstdint>

namespace flyt::budget {

struct Allocations {
  std::uint64_t here = 0;       // By the calling thread.
  std::uint64_t elsewhere = 0;  // By all others.
};

// Since the process began.
Allocations allocations();

}  // namespace flyt::budget
