// Reduction: one atomic operation on one element, for copies that reduce.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softgpu/interpreter/select.h"

namespace flyt::ptx {

// Replaces what is at `place` by its sum (or whatever) with what is at `value`, atomically.
using Reduce = void (*)(std::byte* place, const std::byte* value);

struct Reduction {
  Reduce apply = nullptr;
  Type type = Type::kB32;
};

// Takes the operation and the type; refuses what PTX does not have.
bool take_reduction(Selector& s, Reduction& reduction);
// The same in two steps, where the type comes later; null for what PTX does not have.
bool take_operation(Selector& s, std::uint32_t& operation);
Reduce reduction_of(std::uint32_t operation, Type type);
bool is_bitwise(std::uint32_t operation);
bool is_extremum(std::uint32_t operation);

}  // namespace flyt::ptx
