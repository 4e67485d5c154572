// MemoryChanges: what one side has written to memory that both sides hold, as bytes.
#include "wire/memory_changes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace flyt::wire {
namespace {

constexpr std::uint32_t kWhole = 0;
constexpr std::uint32_t kMasked = 1;
constexpr std::size_t kHeadBytes = 16;
// So many equal bytes between two changed ones are cheaper as a new change than as zeros of a mask.
constexpr std::size_t kGapBytes = 8 * kHeadBytes;
// What a block can become at worst.
constexpr std::size_t kBlockRoom = MemoryChanges::kBlockBytes + MemoryChanges::kBlockBytes / 8 +
                                   (MemoryChanges::kBlockBytes / kGapBytes + 1) * (kHeadBytes + 1);
static_assert(kBlockRoom < kMemoryChangesBytesMax);

template <class T>
void put(std::vector<std::byte>& out, T value) {
  const std::size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

// The first index from `at` on where the two differ (or, for `equal`, do not); `size` if none.
std::size_t find(const std::byte* left, const std::byte* right, std::size_t at, std::size_t size,
                 bool equal) {
  while (!equal && at + 8 <= size && std::memcmp(left + at, right + at, 8) == 0) at += 8;
  while (at < size && (left[at] == right[at]) != equal) ++at;
  return at;
}

bool bit_of(Bytes mask, std::size_t index) {
  return (std::to_integer<unsigned>(mask[index / 8]) >> (index % 8) & 1U) != 0;
}

}  // namespace

std::uint64_t MemoryChanges::collect(std::uint64_t address, const std::byte* live,
                                     std::byte* shadow, std::uint64_t bytes) {
  std::array<std::byte, kBlockBytes> now;
  for (std::uint64_t at = 0; at < bytes; at += kBlockBytes) {
    const std::size_t size = std::min<std::uint64_t>(kBlockBytes, bytes - at);
    if (std::memcmp(live + at, shadow + at, size) == 0) continue;
    if (bytes_.size() + kBlockRoom > kMemoryChangesBytesMax) return at;
    std::memcpy(now.data(), live + at, size);
    add_block(address + at, Bytes(now).first(size), shadow + at);
  }
  return bytes;
}

void MemoryChanges::add_block(std::uint64_t address, Bytes now, std::byte* shadow) {
  std::size_t begin = find(now.data(), shadow, 0, now.size(), false);
  while (begin < now.size()) {
    std::size_t end = begin;
    std::size_t next = begin;
    while (next < now.size() && next - end < kGapBytes) {
      end = find(now.data(), shadow, next, now.size(), true);
      next = find(now.data(), shadow, end, now.size(), false);
    }
    add_span(address + begin, now.subspan(begin, end - begin), shadow + begin);
    begin = next;
  }
  std::memcpy(shadow, now.data(), now.size());
}

void MemoryChanges::add_span(std::uint64_t address, Bytes now, const std::byte* before) {
  std::array<std::byte, kBlockBytes / 8> mask{};
  std::size_t changed = 0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == before[i]) continue;
    mask[i / 8] |= static_cast<std::byte>(1U << (i % 8));
    ++changed;
  }
  const bool whole = changed == now.size();
  put(bytes_, address);
  put(bytes_, static_cast<std::uint32_t>(now.size()));
  put(bytes_, whole ? kWhole : kMasked);
  if (whole) {
    bytes_.insert(bytes_.end(), now.begin(), now.end());
    return;
  }
  bytes_.insert(bytes_.end(), mask.begin(), mask.begin() + static_cast<long>((now.size() + 7) / 8));
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (bit_of(mask, i)) bytes_.push_back(now[i]);
  }
}

void MemoryChange::apply(std::byte* to) const {
  if (mask.empty()) {
    std::memcpy(to, data.data(), data.size());
    return;
  }
  std::size_t from = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (bit_of(mask, i)) to[i] = data[from++];
  }
}

bool MemoryChangesReader::next(MemoryChange& change) {
  if (!reader_.ok() || reader_.remaining() == 0) return false;
  reader_.read(change.address);
  reader_.read(change.bytes);
  const auto kind = reader_.take<std::uint32_t>();
  const bool sane = change.bytes != 0 && change.bytes <= MemoryChanges::kBlockBytes &&
                    change.address + change.bytes > change.address && kind <= kMasked;
  if (!reader_.ok() || !sane) {
    reader_.fail();
    return false;
  }
  change.mask = {};
  std::size_t size = change.bytes;
  if (kind == kMasked) {
    change.mask = reader_.take_bytes((change.bytes + 7) / 8);
    size = 0;
    for (const std::byte part : change.mask) {
      size += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(part)));
    }
    // Bits behind the last byte would count without being written.
    const unsigned rest = change.bytes % 8;
    if (!change.mask.empty() && rest != 0 &&
        std::to_integer<unsigned>(change.mask.back()) >> rest != 0) {
      reader_.fail();
      return false;
    }
  }
  change.data = reader_.take_bytes(size);
  return reader_.ok();
}

}  // namespace flyt::wire
