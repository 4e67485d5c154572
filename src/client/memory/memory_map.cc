// MemoryMap: what the client knows about every address that CUDA knows: no round trip is needed to
// say what a pointer is.
#include "client/memory/memory_map.h"

#include <mutex>

#include "base/pages.h"

namespace flyt::client {

bool MemoryMap::add(Memory memory) {
  const std::unique_lock lock(mutex_);
  if (memory.bytes == 0 || overlaps_locked(memory.base, memory.bytes)) return false;
  if (memory.buffer_id == 0) memory.buffer_id = next_buffer_id_++;
  by_base_.emplace(memory.base, memory);
  return true;
}

std::vector<Memory> MemoryMap::remove_owned_by(std::uint64_t context) {
  std::vector<Memory> removed;
  const std::unique_lock lock(mutex_);
  for (auto at = by_base_.begin(); at != by_base_.end();) {
    if (at->second.context == context) {
      removed.push_back(at->second);
      at = by_base_.erase(at);
    } else {
      ++at;
    }
  }
  return removed;
}

std::optional<Memory> MemoryMap::find(std::uint64_t address) const {
  const std::shared_lock lock(mutex_);
  const Memory* memory = locate(address);
  return memory == nullptr ? std::nullopt : std::optional<Memory>(*memory);
}

bool MemoryMap::overlaps(std::uint64_t base, std::uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  return overlaps_locked(base, bytes);
}

std::vector<Memory> MemoryMap::within(std::uint64_t base, std::uint64_t bytes) const {
  std::vector<Memory> found;
  const std::shared_lock lock(mutex_);
  for (auto at = by_base_.lower_bound(base); at != by_base_.end(); ++at) {
    if (at->first - base >= bytes) break;
    found.push_back(at->second);
  }
  return found;
}

MemoryMap::Placed MemoryMap::place(std::uint64_t address, std::uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  const Memory* memory = locate(address);
  if (memory == nullptr) return {};
  if (!memory->on_device()) {
    if (bytes <= memory->end() - address) return {Place::kPinned, *memory, memory->writable()};
    // Whole pages are locked.
    const bool in_pages = bytes <= Pages::whole(memory->end()) - address;
    return {in_pages ? Place::kPageable : Place::kBeyond, *memory};
  }
  const Memory* last = memory;
  bool writable = memory->writable();
  std::uint64_t covered = memory->end() - address;
  while (covered < bytes && last->kind == MemoryKind::kMapped) {
    const Memory* next = locate(last->end());
    if (next == nullptr || next->kind != MemoryKind::kMapped || !next->accessible()) break;
    covered += next->bytes;
    writable = writable && next->writable();
    last = next;
  }
  const bool good = covered >= bytes && memory->accessible();
  return {good ? Place::kDevice : Place::kBad, *memory, writable};
}

const Memory* MemoryMap::locate(std::uint64_t address) const {
  auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin()) return nullptr;
  const Memory& memory = std::prev(after)->second;
  return address - memory.base < memory.bytes ? &memory : nullptr;
}

bool MemoryMap::overlaps_locked(std::uint64_t base, std::uint64_t bytes) const {
  if (bytes == 0) return false;
  if (base + (bytes - 1) < base) return true;
  const auto next = by_base_.lower_bound(base);
  if (next != by_base_.end() && next->first - base < bytes) return true;
  return locate(base) != nullptr;
}

}  // namespace flyt::client
