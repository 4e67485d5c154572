// Sizes as people write and read them, and texts that others wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace flyt {

// "1.5 GiB", "512 MiB", "100 bytes": the largest unit that leaves at least 1, one digit behind the
// point where it is not 0.
std::string size_text(std::uint64_t bytes);

// "1073741824", "512M", "16G", "1.5T", also with "iB" or "B" behind: units are powers of 1024.
Result<std::uint64_t> parse_size(std::string_view text);

// "90", "90s", "15m", "12h", "7d": in seconds.
Result<std::uint64_t> parse_seconds(std::string_view text);

// "7d 3h", "12m 5s": the two largest units.
std::string seconds_text(std::uint64_t seconds);

// "0 GPUs", "1 GPU", "2 GPUs": how many there are of what is called so.
std::string counted(std::uint64_t count, std::string_view name);

// What a peer wrote, so that it can be kept and shown: UTF-8 of at most `bytes_max` bytes, never a
// part of a character; what is none, or a control character, is '?', and an end of a line ' '.
std::string plain_text(std::string_view text, std::size_t bytes_max);

}  // namespace flyt
