// PinnedHeap: the page-locked host memory that programs ask for.
#pragma once

#include <cstdint>

#include "client/address_space.h"

namespace flyt::client {

// Whole pages at addresses of a window of their own, which they keep for life. Safe from any
// thread.
class PinnedHeap {
 public:
  explicit PinnedHeap(const wire::Window& window)
      : windowed_(window.bytes != 0), space_(window.base, window.bytes) {}

  // Zeroed; null if there is none.
  void* allocate(std::uint64_t bytes);
  // What allocate() gave, with the same size.
  void free(void* memory, std::uint64_t bytes);
  // Addresses of the window that nothing has.
  AddressSpace& space() { return space_; }

 private:
  const bool windowed_;
  AddressSpace space_;
};

}  // namespace flyt::client
