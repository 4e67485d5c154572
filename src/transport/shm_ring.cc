#include "transport/shm_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace flyt::transport {
namespace {

// A writer that found the ring full sleeps until this part of it is free.
constexpr std::size_t kWakePart = 4;

constexpr std::size_t kLineBytes = 64;
// What an ordinary frame takes.
constexpr std::size_t kLinesAhead = 3;

// The ring's size is a power of two, which the compiler does not know: it would divide.
std::size_t offset_in(Bytes data, std::uint64_t position) { return position & (data.size() - 1); }

// Fetches the lines that are written next while nobody waits for them: the reader has had them.
void fetch_ahead(MutableBytes data, std::uint64_t at) {
  for (std::size_t line = 1; line <= kLinesAhead; ++line) {
    const std::byte* next = data.data() + offset_in(data, at + line * kLineBytes);
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*next));
#else
    __builtin_prefetch(next, 1);
#endif
  }
}

}  // namespace

// In this order, as another thread may write meanwhile: an honest reader is never behind what was
// known of it before, nor ahead of what was written when it is looked at later.
RingState RingWriter::state() const {
  const std::uint64_t known = known_tail_.load(std::memory_order_acquire);
  const std::uint64_t tail = control_.tail.load(std::memory_order_acquire);
  const std::uint64_t head = head_.load(std::memory_order_acquire);
  if (!possible(known, tail, head)) {
    // Not if more was read, and then written, between the two looks.
    const bool moved = control_.tail.load(std::memory_order_acquire) != tail;
    return moved ? RingState::kReady : RingState::kCorrupt;
  }
  return head - tail == data_.size() ? RingState::kStuck : RingState::kReady;
}

bool RingWriter::possible(std::uint64_t known, std::uint64_t tail, std::uint64_t head) const {
  return head - tail <= data_.size() && tail - known <= head - known;
}

std::optional<std::size_t> RingWriter::write(std::span<const Bytes> from) {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  std::size_t size_of_all = 0;
  for (const Bytes& piece : from) size_of_all += piece.size();
  std::uint64_t tail = known_tail_.load(std::memory_order_relaxed);
  if (data_.size() - (head - tail) < size_of_all) {
    const std::uint64_t known = std::exchange(tail, control_.tail.load(std::memory_order_acquire));
    if (!possible(known, tail, head)) return std::nullopt;
    known_tail_.store(tail, std::memory_order_release);
  }
  std::size_t room = data_.size() - (head - tail);
  std::uint64_t at = head;
  for (const Bytes& piece : from) {
    const std::size_t size = std::min(piece.size(), room);
    const std::size_t offset = offset_in(data_, at);
    const std::size_t first = std::min(size, data_.size() - offset);
    if (first > 0) std::memcpy(data_.data() + offset, piece.data(), first);
    if (size > first) std::memcpy(data_.data(), piece.data() + first, size - first);
    at += size;
    room -= size;
    if (room == 0) break;
  }
  head_.store(at, std::memory_order_relaxed);
  // Before owes_bell() looks: a reader that does not see these bytes has asked by then.
  control_.head.store(at);
  fetch_ahead(data_, at);
  return at - head;
}

RingState RingReader::state() const {
  const std::uint64_t filled =
      control_.head.load(std::memory_order_acquire) - tail_.load(std::memory_order_relaxed);
  if (filled > data_.size()) return RingState::kCorrupt;
  return filled == 0 ? RingState::kStuck : RingState::kReady;
}

std::optional<std::size_t> RingReader::read(std::span<const MutableBytes> into) {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  std::uint64_t filled = control_.head.load(std::memory_order_acquire) - tail;
  if (filled > data_.size()) return std::nullopt;
  if (filled == 0) return 0;
  std::uint64_t at = tail;
  for (const MutableBytes& piece : into) {
    const std::size_t size = std::min<std::uint64_t>(piece.size(), filled);
    const std::size_t offset = offset_in(data_, at);
    const std::size_t first = std::min(size, data_.size() - offset);
    if (first > 0) std::memcpy(piece.data(), data_.data() + offset, first);
    if (size > first) std::memcpy(piece.data() + first, data_.data(), size - first);
    at += size;
    filled -= size;
    if (filled == 0) break;
  }
  tail_.store(at, std::memory_order_relaxed);
  control_.tail.store(at);
  return at - tail;
}

bool RingReader::owes_bell() {
  if (control_.writer_waits.load() == 0) return false;
  const std::uint64_t filled =
      control_.head.load(std::memory_order_acquire) - tail_.load(std::memory_order_relaxed);
  if (filled > data_.size() - data_.size() / kWakePart) return false;
  return control_.writer_waits.exchange(0) != 0;
}

}  // namespace flyt::transport
