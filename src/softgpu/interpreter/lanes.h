// Lane loops: an operation on one lane becomes a handler for all active ones.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "softgpu/interpreter/program.h"
#include "softgpu/interpreter/warp.h"

namespace flyt::ptx {

// Bit patterns of the small formats.
struct Half {
  std::uint16_t bits = 0;
};
struct Bfloat {
  std::uint16_t bits = 0;
};

// Values of up to 16 bits lie in 4-byte cells.
template <class T>
inline T get(const std::byte* row, unsigned lane) {
  if constexpr (sizeof(T) <= 2) {
    std::uint32_t cell;
    std::memcpy(&cell, row + lane * 4, 4);
    if constexpr (sizeof(T) == 1) return std::bit_cast<T>(static_cast<std::uint8_t>(cell));
    if constexpr (sizeof(T) == 2) return std::bit_cast<T>(static_cast<std::uint16_t>(cell));
  } else {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    T value;
    std::memcpy(&value, row + lane * sizeof(T), sizeof(T));
    return value;
  }
}

template <class T>
inline void put(std::byte* row, unsigned lane, T value) {
  if constexpr (sizeof(T) <= 2) {
    std::uint32_t cell;
    if constexpr (sizeof(T) == 1) cell = std::bit_cast<std::uint8_t>(value);
    if constexpr (sizeof(T) == 2) cell = std::bit_cast<std::uint16_t>(value);
    std::memcpy(row + lane * 4, &cell, 4);
  } else {
    std::memcpy(row + lane * sizeof(T), &value, sizeof(T));
  }
}

// Calls f(lane) for each lane of `lanes`.
template <class F>
inline void for_lanes(Mask lanes, F&& f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<unsigned>(std::countr_zero(lanes)));
}

// d[lane] = f(lane). Whole warps go through a local row, so that the compiler may use vectors
// whatever the rows of the operands are.
template <class D, class F>
inline void each_lane(std::byte* d, Mask lanes, F&& f) {
  if (lanes == kAllLanes) {
    D out[kLanes];
    for (unsigned lane = 0; lane < kLanes; ++lane) out[lane] = f(lane);
    for (unsigned lane = 0; lane < kLanes; ++lane) put<D>(d, lane, out[lane]);
  } else {
    for_lanes(lanes, [&](unsigned lane) { put<D>(d, lane, f(lane)); });
  }
}

// The handler of d = Op::apply(a, b, ...) with operands of types S, at most four.
template <class Op, class D, class... S>
Flow lanewise(Warp& warp, const Step& step, Mask lanes) {
  const Row refs[4] = {step.a, step.b, step.c, step.e};
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::byte* const rows[] = {warp.row(refs[I])...};
    each_lane<D>(warp.row(step.d), lanes,
                 [&](unsigned lane) { return Op::apply(get<S>(rows[I], lane)...); });
  }
  (std::index_sequence_for<S...>{});
  return Flow::kNext;
}

// The same for operations that take options: Op::apply(step.value, a, b, ...).
template <class Op, class D, class... S>
Flow lanewise_with(Warp& warp, const Step& step, Mask lanes) {
  const Row refs[4] = {step.a, step.b, step.c, step.e};
  const std::int64_t options = step.value;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::byte* const rows[] = {warp.row(refs[I])...};
    each_lane<D>(warp.row(step.d), lanes,
                 [&](unsigned lane) { return Op::apply(options, get<S>(rows[I], lane)...); });
  }
  (std::index_sequence_for<S...>{});
  return Flow::kNext;
}

// The lanes of `lanes` for which f(lane) is true.
template <class F>
inline Mask which_lanes(Mask lanes, F&& f) {
  Mask result = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    result |= static_cast<Mask>(f(lane) ? 1u : 0u) << lane;
  }
  return result & lanes;
}

}  // namespace flyt::ptx
