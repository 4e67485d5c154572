// Lanes: further connections of a session that carry its bulk data, and nothing but blocks of it.
//
// A block to the server has a name, 1 for the first of its lane and then one more each, by which a
// command says what is to become of it. A block to the client is a part of a delivery.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "wire/limits.h"

namespace flyt::wire {

struct LaneBlock {
  std::uint32_t sent_bytes = 0;  // That follow; fewer than `bytes`: they are a zstd frame of those.
  std::uint32_t bytes = 0;
  std::uint64_t name = 0;    // To the server: its number. To the client: the delivery.
  std::uint64_t offset = 0;  // To the server: 0. To the client: where in the delivery.
  bool packed() const { return sent_bytes < bytes; }
};
static_assert(sizeof(LaneBlock) == 24 && alignof(LaneBlock) == 8);
inline constexpr std::size_t kLaneBlockHeaderBytes = sizeof(LaneBlock);

inline void encode(const LaneBlock& block, Writer& writer) { writer.write(block); }
inline LaneBlock decode_lane_block(Reader& reader) { return reader.take<LaneBlock>(); }

// Why a block is refused whatever came before it, empty if it is not.
inline std::string_view problem_with(const LaneBlock& block) {
  if (block.bytes == 0 || block.sent_bytes == 0) return "empty block on a lane";
  if (block.bytes > kLaneBlockBytesMax) return "block on a lane exceeds the limit";
  if (block.sent_bytes > block.bytes) return "block on a lane is longer than its data";
  return {};
}

}  // namespace flyt::wire
