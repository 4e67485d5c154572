// Ring: a one-way stream of bytes in memory that two processes share and neither trusts.
//
// Each side keeps its own position to itself, publishes a copy of it, and checks the other's copy
// before use: what a hostile peer writes there can end the stream, never move a pointer out of the
// ring. Bytes are copied out before anybody looks at them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"

namespace flyt::transport {

// Positions count bytes since the beginning; all zero at the start. Every field has a cache line
// of its own.
struct RingControl {
  alignas(64) std::atomic<std::uint64_t> head;          // Written up to here; the writer's.
  alignas(64) std::atomic<std::uint64_t> tail;          // Read up to here; the reader's.
  alignas(64) std::atomic<std::uint32_t> reader_waits;  // The reader wants its bell rung.
  alignas(64) std::atomic<std::uint32_t> writer_waits;  // The writer does.
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(RingControl) == 256);

// What a look at the ring found.
enum class RingState : std::uint8_t { kStuck, kReady, kCorrupt };

// Copies into the ring. The size of `data` is a power of two. Belongs to one thread; state() is
// safe from any.
class RingWriter {
 public:
  RingWriter(RingControl& control, MutableBytes data) : control_(control), data_(data) {}

  // Takes as much from the front of `from` as there is room for; none where the reader's position
  // is impossible.
  std::optional<std::size_t> write(std::span<const Bytes> from);

  // kReady: there is room, or another thread has just written. kCorrupt is certain.
  RingState state() const;

  // Asks for the bell, for when a good part of the ring has been read.
  void ask_for_bell() { control_.writer_waits.store(1); }

  // After write(): the reader sleeps and wants its bell rung.
  bool owes_bell() {
    return control_.reader_waits.load() != 0 && control_.reader_waits.exchange(0) != 0;
  }

 private:
  // Whether the reader may be at `tail` when it was at `known` before.
  bool possible(std::uint64_t known, std::uint64_t tail, std::uint64_t head) const;

  RingControl& control_;
  const MutableBytes data_;
  std::atomic<std::uint64_t> head_{0};
  // The reader's position as it was when last looked at: each look takes the line from the reader.
  std::atomic<std::uint64_t> known_tail_{0};
};

// Copies out of the ring; the same rules, of size too.
class RingReader {
 public:
  RingReader(RingControl& control, Bytes data) : control_(control), data_(data) {}

  std::optional<std::size_t> read(std::span<const MutableBytes> into);

  // kReady: there are bytes.
  RingState state() const;

  void ask_for_bell() { control_.reader_waits.store(1); }

  // After read(): the writer sleeps, there is room enough to be worth its while, and it wants its
  // bell rung.
  bool owes_bell();

 private:
  RingControl& control_;
  const Bytes data_;
  std::atomic<std::uint64_t> tail_{0};
};

}  // namespace flyt::transport
