// PinnedHeap: the page-locked host memory that programs ask for.
#pragma once

#include <cstdint>

#include "client/memory/address_space.h"
#include "transport/transport.h"

namespace flyt::client {

// Whole pages at addresses of a window of their own, which they keep for life. Safe from any
// thread.
class PinnedHeap {
 public:
  // `shared_file`: what the server shares with us (transport::Connection::shared_file()), or -1.
  PinnedHeap(const wire::Window& window, int shared_file)
      : window_(window),
        file_(window.bytes <= transport::kSharedFileBytes ? shared_file : -1),
        space_(window.base, window.bytes) {}

  // All memory is that of the shared file, at offset_of() its address.
  bool shared() const { return file_ >= 0 && windowed(); }
  std::uint64_t offset_of(std::uint64_t address) const { return address - window_.base; }

  // Zeroed; null if there is none.
  void* allocate(std::uint64_t bytes);
  // What allocate() gave, with the same size.
  void free(void* memory, std::uint64_t bytes);
  // Addresses of the window that nothing has.
  AddressSpace& space() { return space_; }

 private:
  bool windowed() const { return window_.bytes != 0; }

  const wire::Window window_;
  const int file_;
  AddressSpace space_;
};

}  // namespace flyt::client
