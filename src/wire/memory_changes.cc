// MemoryChanges: what one side has written to memory that both sides hold, as bytes.
#include "wire/memory_changes.h"

#include <emmintrin.h>

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

}  // namespace

// A bit for each byte of a block: whether it has changed.
class MemoryChanges::Differences {
 public:
  Differences(const std::byte* left, const std::byte* right, std::size_t size) : size_(size) {
    std::size_t at = 0;
    for (; at + 16 <= size; at += 16) words_[at / 64] |= differ(left + at, right + at) << at % 64;
    for (; at < size; ++at) words_[at / 64] |= std::uint64_t{left[at] != right[at]} << at % 64;
  }

  // The first index from `at` on whose bit is (or is not) set; `size` if there is none.
  std::size_t first_changed(std::size_t at) const { return first(at, 0); }
  std::size_t first_equal(std::size_t at) const { return first(at, ~std::uint64_t{0}); }
  // From a changed byte on: where so many equal ones follow that a change should end.
  std::size_t end_of_span(std::size_t begin) const {
    static_assert(kGapBytes >= 2 * 64, "among so many bits is a whole word of them");
    std::size_t word = begin / 64;
    for (;;) {
      while (words_[word] != 0) ++word;
      const std::size_t end =
          word * 64 - static_cast<std::size_t>(std::countl_zero(words_[word - 1]));
      const std::size_t next = first_changed(word * 64);
      if (next == size_ || next - end >= kGapBytes) return end;
      word = next / 64;
    }
  }
  // The bits of eight bytes from `at` on, of which `left` at most count.
  unsigned eight(std::size_t at, std::size_t left) const {
    std::uint64_t bits = words_[at / 64] >> at % 64;
    if (at % 64 > 56) bits |= words_[at / 64 + 1] << (64 - at % 64);
    return static_cast<unsigned>(bits) & (left < 8 ? (1U << left) - 1 : 0xffU);
  }

 private:
  // A bit for each of 16 bytes.
  static std::uint64_t differ(const std::byte* left, const std::byte* right) {
    __m128i a;
    __m128i b;
    std::memcpy(&a, left, sizeof a);
    std::memcpy(&b, right, sizeof b);
    return 0xffffU & ~static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)));
  }
  std::size_t first(std::size_t at, std::uint64_t flip) const {
    while (at < size_) {
      const std::uint64_t left = (words_[at / 64] ^ flip) >> at % 64;
      if (left != 0) return std::min<std::size_t>(at + std::countr_zero(left), size_);
      at = (at / 64 + 1) * 64;
    }
    return size_;
  }

  const std::size_t size_;
  // One more, of zeros, which is the end of all that is looked for.
  std::array<std::uint64_t, MemoryChanges::kBlockBytes / 64 + 1> words_{};
};

namespace {

// Calls `each` with the index of each bit that is set.
template <class Each>
void for_bits(unsigned bits, Each&& each) {
  for (; bits != 0; bits &= bits - 1) each(static_cast<std::size_t>(std::countr_zero(bits)));
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
  const Differences differences(now.data(), shadow, now.size());
  std::size_t begin = differences.first_changed(0);
  while (begin < now.size()) {
    const std::size_t end = differences.end_of_span(begin);
    add_span(address, now, differences, begin, end);
    begin = differences.first_changed(end);
  }
  std::memcpy(shadow, now.data(), now.size());
}

void MemoryChanges::add_span(std::uint64_t address, Bytes now, const Differences& differences,
                             std::size_t begin, std::size_t end) {
  const std::size_t size = end - begin;
  const bool whole = differences.first_equal(begin) >= end;
  put(bytes_, address + begin);
  put(bytes_, static_cast<std::uint32_t>(size));
  put(bytes_, whole ? kWhole : kMasked);
  if (whole) {
    bytes_.insert(bytes_.end(), now.begin() + static_cast<std::ptrdiff_t>(begin),
                  now.begin() + static_cast<std::ptrdiff_t>(end));
    return;
  }
  const std::size_t at = bytes_.size();
  bytes_.resize(at + (size + 7) / 8 + size);
  std::byte* mask = bytes_.data() + at;
  std::byte* data = mask + (size + 7) / 8;
  for (std::size_t i = begin; i < end; i += 8) {
    const unsigned bits = differences.eight(i, end - i);
    *mask++ = static_cast<std::byte>(bits);
    if (bits == 0xff) {
      std::memcpy(data, now.data() + i, 8);
      data += 8;
    } else {
      for_bits(bits, [&](std::size_t bit) { *data++ = now[i + bit]; });
    }
  }
  bytes_.resize(static_cast<std::size_t>(data - bytes_.data()));
}

void MemoryChange::apply(std::byte* to) const {
  if (mask.empty()) {
    std::memcpy(to, data.data(), data.size());
    return;
  }
  const std::byte* from = data.data();
  for (const std::byte part : mask) {
    const auto bits = std::to_integer<unsigned>(part);
    if (bits == 0xff) {
      std::memcpy(to, from, 8);
      from += 8;
    } else {
      for_bits(bits, [&](std::size_t bit) { to[bit] = *from++; });
    }
    to += 8;
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
