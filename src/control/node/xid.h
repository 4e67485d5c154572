// Xids: NVIDIA's numbered errors of GPUs, and what each is to a node.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace flyt::node {

enum class XidKind : std::uint8_t {
  kProgram,  // A program can cause it whenever it likes; or nobody here knows.
  kMachine,  // Of the GPU, a link or the driver. Programs go on, or only some of them.
  kFatal,    // The same, and the GPU is of no use until it is reset.
};

struct XidFacts {
  std::uint32_t number;
  XidKind kind;
  std::string_view meaning;  // What has happened, for people.
};

// Those that are known, ascending: docs/flyt-node-manager.md says why each is what it is.
std::span<const XidFacts> known_xids();

// Higher numbers, NVIDIA's 999 for unknown errors among them, are kOtherXids here: so that those
// that are counted are few.
inline constexpr std::uint32_t kXidMax = 255;
inline constexpr std::uint32_t kOtherXids = 0;
std::uint32_t xid_number(std::uint64_t told);

XidKind kind_of_xid(std::uint32_t number);
// "Xid 79 (the GPU has fallen off the bus)".
std::string xid_text(std::uint32_t number);

// How many of a number there were.
using XidCounts = std::map<std::uint32_t, std::uint64_t>;
// "Xid 31 (...), 3 times; Xid 45 (...)".
std::string xids_text(const XidCounts& counts);

}  // namespace flyt::node
