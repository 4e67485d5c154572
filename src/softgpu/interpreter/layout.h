// layout: the order in which the basic blocks of a function become steps.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/ptx/code.h"

namespace flyt::ptx {

// Instructions that stay together: [first, end).
struct Stretch {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// A warp whose lanes stand at different steps runs those at the earliest one (Warp::choose). So
// lanes that went different ways meet where a GPU lets them meet, if the steps of the ways come
// before those of that place:
//
//   - the blocks of a loop come together, and what lanes go on with when they leave it comes later;
//   - what lies between a branch and the first block that all its ways lead to comes before it.
//
// Text that is so already is one stretch, and so is what would be too much effort to put in order.
// LLVM often puts the end of an outer loop before the inner ones instead, and GCC what is rare
// before what is not. Time: near linear in the instructions and targets of branches.
std::vector<Stretch> lay_out(const Code& code);

}  // namespace flyt::ptx
