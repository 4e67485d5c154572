// Handles of GPUs, as programs and the wire see them: a number that no program takes for an
// address of its own.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "nvml/types.h"

namespace flyt::nvml {

// GPUs that one server shows.
inline constexpr std::uint32_t kGpusMax = 64;

// Not canonical on x86-64, so that following it faults at once.
inline constexpr std::uint64_t kHandleBase = 0x4e56'4d4c'0000'0000;
inline constexpr std::uint64_t kHandleStep = 16;

inline nvmlDevice_t handle_of(std::uint32_t index) {
  return static_cast<nvmlDevice_t>(pointer_at(kHandleBase + (index + 1) * kHandleStep));
}

// Which of `count` GPUs a handle means; `count` if none.
inline std::uint32_t index_of(nvmlDevice_t handle, std::uint32_t count) {
  const std::uint64_t offset = address_of(handle) - kHandleBase;
  if (offset % kHandleStep != 0 || offset == 0 || offset / kHandleStep > count) return count;
  return static_cast<std::uint32_t>(offset / kHandleStep - 1);
}

}  // namespace flyt::nvml
