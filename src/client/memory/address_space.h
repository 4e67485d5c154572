// AddressSpace: which addresses of a window are free.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/annotations.h"
#include "wire/hello.h"

namespace flyt::client {

// Gives out ranges of addresses, lowest first. Safe from any thread.
class AddressSpace {
 public:
  AddressSpace(std::uint64_t base, std::uint64_t bytes) {
    if (bytes != 0) free_.emplace(base, bytes);
  }

  // `bytes` > 0, alignment a power of two. At `hint` if that is possible (0: no wish). 0 if there
  // is no room.
  std::uint64_t take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint)
      EXCLUDES(mutex_);
  // Exactly what take() gave.
  void give(std::uint64_t base, std::uint64_t bytes) EXCLUDES(mutex_);

 private:
  bool take_at(std::uint64_t base, std::uint64_t bytes) REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_ GUARDED_BY(mutex_);
};

// Reserves, once a process, the addresses where the server's device memory will appear, so that
// nothing else of this process ever lands there, and tells them for the hello. What cannot be
// reserved is missing.
std::vector<wire::Window> reserve_windows();

// The same for page-locked host memory, which is the client's own; 0 bytes if it cannot be had.
wire::Window reserve_pinned_window();

}  // namespace flyt::client
