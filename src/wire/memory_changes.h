// MemoryChanges: what one side has written to memory that both sides hold, as bytes.
//
// A change is `u64 address, u32 bytes, u32 kind`, and then, of kind 0, the bytes; of kind 1, a mask
// of ceil(bytes / 8) bytes, lowest bit first, and the bytes whose bit is set. Changes follow each
// other without padding. Only bytes that differ from what the other side has are named, so that two
// sides that write different bytes of one word never undo each other.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace flyt::wire {

inline constexpr std::uint32_t kMemoryChangesBytesMax = 256 * kKiB;

// Collects changes until there is no room for more. Belongs to one thread.
class MemoryChanges {
 public:
  static constexpr std::size_t kBlockBytes = 4096;

  // Looks for bytes of [live, live + bytes), which stands for `address` on the other side, that
  // differ from `shadow`, what the other side has; notes them and makes the shadow equal. Others
  // may write to `live` meanwhile. Returns how many bytes it has looked at: fewer than `bytes` when
  // it is full.
  std::uint64_t collect(std::uint64_t address, const std::byte* live, std::byte* shadow,
                        std::uint64_t bytes);

  bool empty() const { return bytes_.empty(); }
  Bytes bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  class Differences;

  // One block that is known to differ; `now` does not change.
  void add_block(std::uint64_t address, Bytes now, std::byte* shadow);
  // Its bytes from `begin` to `end`.
  void add_span(std::uint64_t address, Bytes now, const Differences& differences, std::size_t begin,
                std::size_t end);

  std::vector<std::byte> bytes_;
};

// One change as received. Nothing in it is trusted but its shape.
struct MemoryChange {
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
  Bytes mask;  // Empty: all bytes.
  Bytes data;

  // Writes the changed bytes and no others, to memory that stands for `address`.
  void apply(std::byte* to) const;
};

// Reads changes one after the other.
class MemoryChangesReader {
 public:
  explicit MemoryChangesReader(Bytes bytes) : reader_(bytes) {}
  // False at the end and for a malformed rest: then ok() is false too.
  bool next(MemoryChange& change);
  bool ok() const { return reader_.ok(); }

 private:
  Reader reader_;
};

}  // namespace flyt::wire
