// Access: one lane's address becomes a place in the host's memory, or a fault.
#pragma once

#include <bit>
#include <cstdint>

#include "base/bytes.h"
#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/warp.h"

namespace flyt::ptx {

// Checks the accesses of one instruction. `bytes` is a power of two, and the alignment asked for.
template <Space S>
class Access {
 public:
  Access(Warp& warp, unsigned bytes, bool write)
      : warp_(warp), block_(warp.block()), bytes_(bytes), write_(write) {
    if constexpr (kReachesOwn) {
      own_ = warp.own_memory();
      own_places_ = own_.bytes >= bytes ? own_.bytes - bytes + 1 : 0;
    }
  }

  // The place of `address` for `lane`; null: failed() tells what to return.
  std::byte* at(unsigned lane, std::uint64_t address) {
    // Parameters are registers and constants to a GPU: ptxas cuts what is not aligned into pieces.
    if (S != Space::kParam && (address & (bytes_ - 1)) != 0) {
      return fail(FaultKind::kMisalignedAddress, lane, address);
    }
    if constexpr (kReachesOwn) {
      const std::uint64_t offset = address - kLocalWindow;
      if (offset < own_places_) return own_.at(lane, offset);
    }
    if constexpr (S == Space::kShared) {
      return or_fail(block_.shared(address, bytes_), lane, address);
    }
    if constexpr (S == Space::kLocal || S == Space::kParam) return own(lane, address);
    if (address >> MemoryMap::kPageShift == page_) {
      return static_cast<std::byte*>(pointer_at(address));
    }
    if (block_.memory().valid(address, bytes_, write_)) [[likely]] {
      if (block_.memory().whole_page(address, write_)) page_ = address >> MemoryMap::kPageShift;
      return static_cast<std::byte*>(pointer_at(address));
    }
    if constexpr (S == Space::kGeneric) return window(lane, address);
    return fail(FaultKind::kIllegalAddress, lane, address);
  }

  // All of [address, address + bytes) lies in one page that may be touched as a whole.
  bool whole(std::uint64_t address, std::uint64_t bytes) const {
    if constexpr (S == Space::kShared || S == Space::kLocal || S == Space::kParam) return false;
    return address >> MemoryMap::kPageShift == (address + bytes - 1) >> MemoryMap::kPageShift &&
           block_.memory().whole_page(address, write_);
  }

  Flow failed() const { return Flow::kFault; }

 private:
  static constexpr bool kReachesOwn =
      S == Space::kLocal || S == Space::kParam || S == Space::kGeneric;

  std::byte* fail(FaultKind kind, unsigned lane, std::uint64_t address) {
    warp_.fault(kind, Mask{1} << lane, address);
    return nullptr;
  }
  std::byte* or_fail(std::byte* place, unsigned lane, std::uint64_t address) {
    return place != nullptr ? place : fail(FaultKind::kIllegalAddress, lane, address);
  }

  // .local, and .param: of functions in the frame, of kernels read-only in a buffer.
  std::byte* own(unsigned lane, std::uint64_t address) {
    if (address - kLocalWindow < kLocalWindowBytes) {
      return fail(FaultKind::kIllegalAddress, lane, address);
    }
    if constexpr (S == Space::kLocal) {
      return or_fail(warp_.local(lane, address, bytes_), lane, address);
    }
    if (address - kParameterWindow < kParameterWindowBytes) address -= kParameterWindow;
    return parameter(lane, address);
  }

  std::byte* parameter(unsigned lane, std::uint64_t offset) {
    const auto parameters = block_.parameters();
    if (write_ || offset > parameters.size() || bytes_ > parameters.size() - offset) {
      return fail(FaultKind::kIllegalAddress, lane, offset);
    }
    // Only read: the writing accesses were refused above.
    return const_cast<std::byte*>(parameters.data() + offset);
  }

  std::byte* window(unsigned lane, std::uint64_t address) {
    if (address - kSharedWindow < kSharedWindowBytes) {
      return or_fail(block_.shared(address - kSharedWindow, bytes_), lane, address);
    }
    if (address - kParameterWindow < kParameterWindowBytes) {
      return parameter(lane, address - kParameterWindow);
    }
    return fail(FaultKind::kIllegalAddress, lane, address);
  }

  Warp& warp_;
  Block& block_;
  const unsigned bytes_;
  const bool write_;
  std::uint64_t page_ = ~std::uint64_t{0};
  OwnMemory own_;
  std::uint64_t own_places_ = 0;  // In local memory, for accesses of this size.
};

}  // namespace flyt::ptx
