// What this process may do with its own memory, as the system knows it.
#pragma once

#include <cstdint>

namespace flyt {

enum class PageUse : std::uint8_t { kRead, kWrite };

// Whether every page that holds a byte of [address, address + bytes) is there and may be used so.
// bytes > 0. Takes some microseconds.
bool pages_allow(std::uint64_t address, std::uint64_t bytes, PageUse use);

// The same by the list of all mappings, which is what systems before Linux 6.11 have: some more
// microseconds for each hundred of them.
bool listed_pages_allow(std::uint64_t address, std::uint64_t bytes, PageUse use);

}  // namespace flyt
