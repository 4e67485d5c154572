// What bulk copies have in common, of plain bytes and of tensors.
#pragma once

#include <cstdint>

#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/barrier_object.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {

inline std::uint64_t windowed(std::uint64_t address, bool shared) {
  return shared ? address + kSharedWindow : address;
}

// The same place in another block of the cluster.
inline std::uint64_t in_block(std::uint64_t shared, unsigned rank) {
  return shared % kSharedStride + (rank + 1) * kSharedStride;
}

// Tells the mbarrier at `barrier` in shared memory that bytes have come; false: a fault.
bool tell(Warp& warp, unsigned lane, std::uint64_t barrier, std::uint64_t bytes);

// The row of whole addresses, offsets included: these steps have several.
bool address_row(Selector& s, const Operand& operand, Space space, Row& row);

bool select_tensor_copy(Selector& s, bool reduces);

}  // namespace flyt::ptx
