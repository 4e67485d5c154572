// What is in the way of a session's memory in a client's process.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace flyt::tests {

// For the job "crowded" a page at each place below 64 TiB where the client would have the server's
// memory, for "crammed" at the last places as well. Before the first CUDA call.
inline void take_places(const std::string& job) {
  if (job != "crowded" && job != "crammed") return;
  constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;
  std::vector<std::uint64_t> places = {0x2000000000, 0x4000000000};
  for (const std::uint64_t column : {0x30, 0x20, 0x10}) {
    places.insert(places.end(), {column * kTiB, (column + 4) * kTiB});
  }
  if (job == "crammed") places.insert(places.end(), {0x50 * kTiB, 0x51 * kTiB});
  for (const std::uint64_t place : places) {
    ::mmap(pointer_at(place), 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
           -1, 0);
  }
}

}  // namespace flyt::tests
