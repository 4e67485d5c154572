// Figures: what one run measured, by name.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace flyt::bench {

// A missing name was not measured.
using Figures = std::map<std::string, double>;

// Sizes of the copies, in bytes.
inline constexpr std::size_t kCopySizes[] = {4,        4 << 10,  64 << 10, 1 << 20,
                                             16 << 20, 64 << 20, 256 << 20};

// "4 B", "64 KiB", "256 MiB".
std::string size_text(std::size_t bytes);

// Names of figures; each holds microseconds for one copy.
std::string copy_name(bool to_device, bool pinned, std::size_t bytes);
// Microseconds for sending that many bytes one way and getting one byte back.
std::string bulk_name(std::size_t bytes);

// "name value" lines, as a worker prints them.
Figures parse_figures(const std::string& text);

}  // namespace flyt::bench
