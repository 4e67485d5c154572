// Bytes as what a peer sends on a lane. Whatever comes, its data fits the block that announced it,
// and the lane ends with a reason.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "base/bytes.h"
#include "rpc/lane_stream.h"
#include "transport/transport.h"

namespace flyt {
namespace {

// What a socket pair takes without anybody reading.
constexpr std::size_t kInputBytesMax = 64 * kKiB;

void to_lane(Bytes bytes) {
  auto pair = transport::connection_pair();
  FLYT_ASSERT(pair.ok());
  while (!bytes.empty()) {
    const auto sent = pair->second->write({&bytes, 1}, transport::Patience::kNow);
    FLYT_ASSERT(sent.ok() && *sent > 0);
    bytes = bytes.subspan(*sent);
  }
  pair->second.reset();
  rpc::LaneReader reader(*pair->first);
  while (true) {
    const auto block = reader.next();
    if (!block) {
      FLYT_ASSERT(!block.error().message.empty());
      return;
    }
    FLYT_ASSERT(block->bytes > 0 && block->bytes <= wire::kLaneBlockBytesMax);
    if (block->offset % 2 != 0) {
      if (!reader.skip(*block)) return;
      continue;
    }
    // Exactly as long as announced, so that a sanitizer sees a byte too many.
    std::vector<std::byte> data(block->bytes);
    if (!reader.read(*block, data)) return;
  }
}

}  // namespace
}  // namespace flyt

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  flyt::to_lane(flyt::bytes_at(data, std::min(size, flyt::kInputBytesMax)));
  return 0;
}
