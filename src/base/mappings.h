// What this process may do with its own memory, as the system knows it.
#pragma once

#include <cstdint>

namespace flyt {

enum class PageUse : std::uint8_t { kRead, kWrite };

// Whether every page that holds a byte of [address, address + bytes) is there and may be used so.
// bytes > 0. Looks through the list of mappings up to that place: some microseconds for each
// hundred of them.
bool pages_allow(std::uint64_t address, std::uint64_t bytes, PageUse use);

}  // namespace flyt
