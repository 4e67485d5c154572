// Types of instructions, as their modifiers name them.
#pragma once

#include <cstdint>
#include <optional>

#include "softgpu/interpreter/lanes.h"

namespace flyt::ptx {

enum class Type : std::uint8_t {
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF16x2,
  kBF16x2,
  kU16x2,
  kS16x2,
  kTF32,
  kE4M3x2,
  kE5M2x2,
  kE2M1x2,
  kE2M3x2,
  kE3M2x2,
  kUE8M0x2,
  kPred,
};

std::optional<Type> type_named(std::uint32_t hash);
// Bytes of a register that holds it; 0 for predicates.
unsigned type_bytes(Type type);
bool is_signed(Type type);
bool is_floating(Type type);  // kF16 ... kF64, not packed.

// Picks a handler by type: f(T{}) for the C++ type T of it; null where the type is no such one.
//   pick_integer(Type::kS32, [](auto t) -> Handler { return &lanewise<Add, decltype(t), ...>; })
//   gives &lanewise<Add, std::int32_t, ...>
template <class F>
Handler pick_integer(Type type, F&& f) {
  if (type == Type::kU16) return f(std::uint16_t{});
  if (type == Type::kU32) return f(std::uint32_t{});
  if (type == Type::kU64) return f(std::uint64_t{});
  if (type == Type::kS16) return f(std::int16_t{});
  if (type == Type::kS32) return f(std::int32_t{});
  if (type == Type::kS64) return f(std::int64_t{});
  return nullptr;
}

// By size alone: for .b types and where signs do not matter.
template <class F>
Handler pick_bits(Type type, F&& f) {
  const unsigned bytes = type_bytes(type);
  if (bytes == 1 || bytes == 2) return f(std::uint16_t{});
  if (bytes == 4) return f(std::uint32_t{});
  if (bytes == 8) return f(std::uint64_t{});
  return nullptr;
}

}  // namespace flyt::ptx
