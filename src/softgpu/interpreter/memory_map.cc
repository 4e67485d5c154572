#include "softgpu/interpreter/memory_map.h"

#include <algorithm>

#include "base/bytes.h"

namespace flyt::ptx {

MemoryMap::MemoryMap() = default;
MemoryMap::~MemoryMap() = default;

bool MemoryMap::add(std::uint64_t address, std::uint64_t size, bool writable) {
  constexpr std::uint64_t kEnd = 1ull << kAddressBits;
  constexpr std::uint64_t kWindowsEnd = kFunctionWindow + (1ull << 40);
  if (size == 0) return true;
  if (address >= kEnd || size > kEnd - address) return false;
  if (address < kWindowsEnd && address + size > kSharedWindow) return false;
  const std::lock_guard lock(mutex_);
  set(address, size, writable ? kWritable : kReadable);
  return true;
}

void MemoryMap::remove(std::uint64_t address, std::uint64_t size) {
  constexpr std::uint64_t kEnd = 1ull << kAddressBits;
  if (size == 0 || address >= kEnd || size > kEnd - address) return;
  const std::lock_guard lock(mutex_);
  set(address, size, kAbsent);
}

void MemoryMap::set(std::uint64_t address, std::uint64_t size, std::uint64_t right) {
  const std::uint64_t end = address + size;
  for (std::uint64_t page = address >> kPageShift << kPageShift; page < end; page += kPageBytes) {
    auto& slot = leaves_[page >> (kPageShift + kLeafShift)];
    if (slot.load(std::memory_order_relaxed) == nullptr) {
      if (right == kAbsent) continue;
      leaf_owners_.push_back(std::make_unique<Leaf>());
      slot.store(leaf_owners_.back().get(), std::memory_order_release);
    }
    auto& entry =
        slot.load(std::memory_order_relaxed)->pages[(page >> kPageShift) & (kLeafPages - 1)];
    const std::uint64_t begin = std::max(address, page) - page;
    const std::uint64_t stop = std::min(end - page, kPageBytes);
    if (begin == 0 && stop == kPageBytes) {
      entry.store(right, std::memory_order_release);
      continue;
    }
    set_granules(page, begin >> kGranuleShift, (stop + (1u << kGranuleShift) - 1) >> kGranuleShift,
                 right);
  }
}

// Granules [first, last) of a page of which only a part changes.
void MemoryMap::set_granules(std::uint64_t page_address, std::uint64_t first, std::uint64_t last,
                             std::uint64_t right) {
  Leaf* leaf = leaves_[page_address >> (kPageShift + kLeafShift)].load(std::memory_order_relaxed);
  auto& entry = leaf->pages[(page_address >> kPageShift) & (kLeafPages - 1)];
  const std::uint64_t before = entry.load(std::memory_order_relaxed);
  if (before == right) return;
  Fine* fine = nullptr;
  if (before > kWritable) {
    fine = static_cast<Fine*>(pointer_at(before));
  } else {
    fine_owners_.push_back(std::make_unique<Fine>());
    fine = fine_owners_.back().get();
    for (std::size_t i = 0; i < kGranules / 64; ++i) {
      fine->readable[i] = before >= kReadable ? ~std::uint64_t{0} : 0;
      fine->writable[i] = before == kWritable ? ~std::uint64_t{0} : 0;
    }
  }
  for (std::uint64_t granule = first; granule < last; ++granule) {
    const std::uint64_t bit = 1ull << granule % 64;
    auto& readable = fine->readable[granule / 64];
    auto& writable = fine->writable[granule / 64];
    if (right >= kReadable)
      readable.fetch_or(bit);
    else
      readable.fetch_and(~bit);
    if (right == kWritable)
      writable.fetch_or(bit);
    else
      writable.fetch_and(~bit);
  }
  entry.store(address_of(fine), std::memory_order_release);
}

bool MemoryMap::valid_fine(std::uint64_t entry, std::uint64_t address, std::uint64_t size,
                           bool write) {
  const Fine& fine = *static_cast<const Fine*>(pointer_at(entry));
  const auto& bits = write ? fine.writable : fine.readable;
  const std::uint64_t offset = address & (kPageBytes - 1);
  const std::uint64_t first = offset >> kGranuleShift;
  const std::uint64_t last = (offset + size - 1) >> kGranuleShift;
  const auto set = [&](std::uint64_t granule) {
    return granule < kGranules &&
           (bits[granule / 64].load(std::memory_order_relaxed) >> granule % 64 & 1) != 0;
  };
  return set(first) && (first == last || set(last));
}

bool MemoryMap::valid_range(std::uint64_t address, std::uint64_t size, bool write) const {
  if (size == 0) return true;
  if (address + size < address) return false;
  const std::uint64_t end = address + size;
  while (address < end) {
    const std::uint64_t page_end = (address & ~(kPageBytes - 1)) + kPageBytes;
    const std::uint64_t stop = std::min(end, page_end);
    const std::uint64_t entry = page(address);
    if (entry <= kWritable) {
      if (entry <= static_cast<std::uint64_t>(write)) return false;
      address = stop;
      continue;
    }
    for (; address < stop; address = (address | ((1u << kGranuleShift) - 1)) + 1) {
      if (!valid_fine(entry, address, 1, write)) return false;
    }
  }
  return true;
}

std::uint64_t MemoryMap::readable(std::uint64_t address, std::uint64_t size_max) const {
  std::uint64_t size = 0;
  while (size < size_max && valid(address + size, 1, false)) {
    const std::uint64_t granule_end = ((address + size) | ((1u << kGranuleShift) - 1)) + 1;
    size = granule_end - address;
  }
  return std::min(size, size_max);
}

}  // namespace flyt::ptx
