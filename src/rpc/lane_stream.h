// LaneStream: blocks of data over one connection, packed where the link is slower than packing.
// Both ends of a session use it, for lanes (wire/lane.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "transport/transport.h"
#include "wire/hello.h"
#include "wire/lane.h"

namespace flyt::rpc {

// Decides which blocks are worth packing, by how fast the link took the ones before. Belongs to one
// thread.
class PackingChoice {
 public:
  // What one thread packs, about: a link that takes more is better served with the bytes.
  static constexpr double kCodecBytesPerSecond = 400e6;
  // A rate counts when so much went out since it was last taken.
  static constexpr std::uint64_t kRateBytes = 4 * kMiB;
  // Blocks that go as they are after one that packing did not make an eighth smaller.
  static constexpr int kBlocksOfRest = 64;

  explicit PackingChoice(wire::LanePacking packing) : packing_(packing) {}

  bool try_now();
  // A try saved too little.
  void saved_nothing() { resting_ = kBlocksOfRest; }
  // `bytes` went into the link, which took this long.
  void wrote(std::uint64_t bytes, Duration took);

 private:
  const wire::LanePacking packing_;
  bool slow_ = false;  // The link, when its rate was last taken.
  int resting_ = 0;
  std::uint64_t bytes_ = 0;  // Since then.
  Duration took_{0};
};

// The sending half. Belongs to one thread.
class LaneWriter {
 public:
  LaneWriter(transport::Connection& connection, const Clock& clock, wire::LanePacking packing)
      : connection_(connection), clock_(clock), choice_(packing) {}

  // Sends one block of at most kLaneBlockBytesMax bytes; may be overwritten when this returns.
  Status write(std::uint64_t name, std::uint64_t offset, Bytes data);

 private:
  Bytes packed(Bytes data);

  transport::Connection& connection_;
  const Clock& clock_;
  PackingChoice choice_;
  std::vector<std::byte> packed_;
};

// The receiving half. Belongs to one thread.
class LaneReader {
 public:
  explicit LaneReader(transport::Connection& connection) : connection_(connection) {}

  // Waits for the next block's head. kInvalid: it breaks the rules.
  Result<wire::LaneBlock> next();
  // Fills `into`, of `block.bytes`, with its data.
  Status read(const wire::LaneBlock& block, MutableBytes into);
  // Throws its data away.
  Status skip(const wire::LaneBlock& block);

 private:
  Status fill(MutableBytes into);
  MutableBytes room(std::size_t size);

  transport::Connection& connection_;
  std::vector<std::byte> packed_;
};

}  // namespace flyt::rpc
