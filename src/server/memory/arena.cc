// Arena: device memory of one session, at addresses that this side chooses.
#include "server/memory/arena.h"

#include <utility>

#include "base/assert.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

void insert_range(std::map<std::uint64_t, std::uint64_t>& ranges, std::uint64_t address,
                  std::uint64_t bytes) {
  auto next = ranges.lower_bound(address);
  if (next != ranges.end() && address + bytes == next->first) {
    bytes += next->second;
    next = ranges.erase(next);
  }
  if (next != ranges.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  ranges.emplace(address, bytes);
}

Arena::Arena(BlockSource& source, Regions& regions, AddressWindow window)
    : source_(source), regions_(regions) {
  if (window.bytes != 0) free_addresses_.emplace(window.base, window.bytes);
}

Arena::~Arena() {
  for (const auto& [address, state] : blocks_) {
    regions_.remove(address);
    source_.unmap(state.block);
  }
}

std::optional<Arena::Allocation> Arena::take(const Wanted& wanted) {
  const Lock lock(mutex_);
  return take_locked(wanted);
}

CUresult Arena::allocate(const Wanted& wanted, Allocation& out) {
  if (wanted.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // The rounding below must not wrap.
  if (wanted.bytes > ~std::uint64_t{0} - kBlockBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  BlockState state;
  state.block.slab = wanted.bytes < kSlabAllocationBytesMax;
  state.block.device = wanted.device;
  state.block.home = home(wanted);
  state.block.bytes = round_up(wanted.bytes, kBlockBytes);
  {
    const Lock lock(mutex_);
    if (const auto found = take_locked(wanted)) {
      out = *found;
      return CUDA_SUCCESS;
    }
    if (source_.fixed_addresses() && !take_addresses(state.block.bytes, state.block.address)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  const Block asked = state.block;
  const CUresult result = source_.map(state.block);
  const Lock lock(mutex_);
  if (result != CUDA_SUCCESS) {
    if (source_.fixed_addresses()) give_addresses(asked.address, asked.bytes);
    return result;
  }
  const std::uint64_t address = state.block.address;
  state.id = next_block_id_++;
  if (state.block.slab) state.holes.emplace(address, state.block.bytes);
  regions_.add({address, state.block.bytes, Regions::Kind::kDevice});
  const auto [at, inserted] = blocks_.emplace(address, std::move(state));
  FLYT_ASSERT(inserted);
  out = at->second.block.slab ? *take_from_slab(at->second, wanted)
                              : note(at->second, address, wanted);
  return CUDA_SUCCESS;
}

std::optional<Arena::Allocation> Arena::take_locked(const Wanted& wanted) {
  if (wanted.bytes == 0) return std::nullopt;
  const bool slab = wanted.bytes < kSlabAllocationBytesMax;
  for (auto& [address, state] : blocks_) {
    if (state.block.device != wanted.device || state.block.slab != slab ||
        state.block.home != home(wanted) || state.restoring) {
      continue;
    }
    if (slab) {
      if (auto taken = take_from_slab(state, wanted)) return taken;
    } else if (state.live == 0 && state.retired == 0 &&
               state.block.bytes == round_up(wanted.bytes, kBlockBytes)) {
      return note(state, address, wanted);
    }
  }
  return std::nullopt;
}

std::optional<Arena::Allocation> Arena::take_from_slab(BlockState& block, const Wanted& wanted) {
  const std::uint64_t bytes = round_up(wanted.bytes, kAlignment);
  for (auto hole = block.holes.begin(); hole != block.holes.end(); ++hole) {
    if (hole->second < bytes) continue;
    const auto [address, size] = *hole;
    block.holes.erase(hole);
    if (size > bytes) block.holes.emplace(address + bytes, size - bytes);
    return note(block, address, wanted);
  }
  return std::nullopt;
}

Arena::Allocation Arena::note(BlockState& block, std::uint64_t address, const Wanted& wanted) {
  ++block.live;
  const Allocation allocation{address,      wanted.bytes,        wanted.device,
                              wanted.owner, block.block.address, block.block.bytes,
                              block.id};
  const bool inserted = allocations_.emplace(address, allocation).second;
  FLYT_ASSERT(inserted);
  return allocation;
}

bool Arena::adopt(const Block& block) {
  const Lock lock(mutex_);
  if (!take_addresses_at(block.address, block.bytes)) return false;
  BlockState state;
  state.block = block;
  state.id = next_block_id_++;
  state.restoring = true;
  if (block.slab) state.holes.emplace(block.address, block.bytes);
  regions_.add({block.address, block.bytes, Regions::Kind::kDevice});
  blocks_.emplace(block.address, std::move(state));
  return true;
}

std::optional<Arena::Allocation> Arena::restore(std::uint64_t address, const Wanted& wanted) {
  const Lock lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin() || wanted.bytes == 0) return std::nullopt;
  BlockState& state = std::prev(after)->second;
  if (state.block.device != wanted.device || wanted.bytes > state.block.bytes) return std::nullopt;
  if (!state.block.slab) {
    const bool fits = address == state.block.address && state.live == 0 && state.retired == 0 &&
                      round_up(wanted.bytes, kBlockBytes) == state.block.bytes;
    if (!fits) return std::nullopt;
    return note(state, address, wanted);
  }
  const std::uint64_t bytes = round_up(wanted.bytes, kAlignment);
  const auto behind = state.holes.upper_bound(address);
  if (behind == state.holes.begin() || address % kAlignment != 0) return std::nullopt;
  const auto hole = std::prev(behind);
  const auto [base, size] = *hole;
  const std::uint64_t before = address - base;
  if (before > size || bytes > size - before) return std::nullopt;
  state.holes.erase(hole);
  if (before != 0) state.holes.emplace(base, before);
  if (before + bytes < size) state.holes.emplace(address + bytes, size - before - bytes);
  return note(state, address, wanted);
}

void Arena::end_restoring() {
  const Lock lock(mutex_);
  for (auto& [address, state] : blocks_) state.restoring = false;
}

std::optional<Arena::Allocation> Arena::retire(std::uint64_t address) {
  const Lock lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return std::nullopt;
  const Allocation allocation = found->second;
  allocations_.erase(found);
  BlockState& block = blocks_.at(allocation.block_address);
  --block.live;
  ++block.retired;
  return allocation;
}

void Arena::recycle(const Allocation& retired) {
  const Lock unmapping(unmapping_);
  Block dropped;
  {
    const Lock lock(mutex_);
    const auto found = blocks_.find(retired.block_address);
    // It may have died with its context meanwhile.
    if (found == blocks_.end() || found->second.id != retired.block_id) return;
    BlockState& block = found->second;
    FLYT_ASSERT(block.retired > 0);
    --block.retired;
    if (block.block.slab) {
      insert_range(block.holes, retired.address, round_up(retired.bytes, kAlignment));
    }
    if (block.live != 0 || block.retired != 0 || block.restoring) return;
    // This block counts as idle already.
    if (idle_bytes(block.block.device) <= kIdleBytesMax) return;
    dropped = detach(found);
  }
  discard(dropped);
}

std::uint64_t Arena::trim(CUdevice device) {
  const Lock unmapping(unmapping_);
  std::vector<Block> dropped;
  {
    const Lock lock(mutex_);
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      const auto next = std::next(at);
      const BlockState& state = at->second;
      if (state.block.device == device && state.live == 0 && state.retired == 0 &&
          !state.restoring) {
        dropped.push_back(detach(at));
      }
      at = next;
    }
  }
  std::uint64_t bytes = 0;
  for (const Block& block : dropped) {
    bytes += block.bytes;
    discard(block);
  }
  return bytes;
}

Block Arena::detach(Blocks::iterator block) {
  const Block detached = block->second.block;
  regions_.remove(detached.address);
  blocks_.erase(block);
  return detached;
}

void Arena::discard(const Block& block) {
  source_.unmap(block);
  if (!source_.fixed_addresses()) return;
  const Lock lock(mutex_);
  give_addresses(block.address, block.bytes);
}

std::optional<Arena::Allocation> Arena::find(std::uint64_t address) const {
  const Lock lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return std::nullopt;
  const Allocation& allocation = std::prev(after)->second;
  if (address - allocation.address >= allocation.bytes) return std::nullopt;
  return allocation;
}

std::optional<Block> Arena::block_around(std::uint64_t address, std::uint64_t bytes) const {
  const Lock lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin() || bytes == 0) return std::nullopt;
  const Allocation& allocation = std::prev(after)->second;
  const std::uint64_t offset = address - allocation.address;
  if (offset >= allocation.bytes || bytes > allocation.bytes - offset) return std::nullopt;
  const auto block = blocks_.find(allocation.block_address);
  if (block == blocks_.end()) return std::nullopt;
  return block->second.block;
}

std::optional<Block> Arena::mapped_around(std::uint64_t address) const {
  const Lock lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(after)->second.block;
  if (address - block.address >= block.bytes) return std::nullopt;
  return block;
}

std::vector<Block> Arena::blocks_of(CUdevice device) const {
  const Lock lock(mutex_);
  std::vector<Block> found;
  for (const auto& [address, state] : blocks_) {
    if (state.block.device == device) found.push_back(state.block);
  }
  return found;
}

std::vector<Arena::Allocation> Arena::drop_context(std::uint32_t context) {
  std::vector<Allocation> owned;
  std::vector<Allocation> lost;
  {
    const Lock lock(mutex_);
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      const auto next = std::next(at);
      if (at->second.block.home == context && context != 0) detach(at);
      at = next;
    }
    for (auto at = allocations_.begin(); at != allocations_.end();) {
      const Allocation allocation = at->second;
      const auto block = blocks_.find(allocation.block_address);
      const bool gone = block == blocks_.end() || block->second.id != allocation.block_id;
      if (gone && allocation.owner == kPoolOwner) lost.push_back(allocation);
      if (!gone && allocation.owner == context) {
        --block->second.live;
        ++block->second.retired;
        owned.push_back(allocation);
      }
      at = gone || allocation.owner == context ? allocations_.erase(at) : std::next(at);
    }
  }
  for (const Allocation& allocation : owned) recycle(allocation);
  return lost;
}

Arena::Usage Arena::usage(CUdevice device) const {
  const Lock lock(mutex_);
  Usage usage;
  for (const auto& [address, allocation] : allocations_) {
    if (allocation.device == device) usage.allocated_bytes += allocation.bytes;
  }
  for (const auto& [address, state] : blocks_) {
    if (state.block.device == device) usage.mapped_bytes += state.block.bytes;
  }
  usage.idle_bytes = idle_bytes(device);
  return usage;
}

std::uint64_t Arena::idle_bytes(CUdevice device) const {
  std::uint64_t bytes = 0;
  for (const auto& [address, state] : blocks_) {
    if (state.block.device == device && state.live == 0) bytes += state.block.bytes;
  }
  return bytes;
}

bool Arena::take_addresses(std::uint64_t bytes, std::uint64_t& address) {
  for (auto range = free_addresses_.begin(); range != free_addresses_.end(); ++range) {
    if (range->second < bytes) continue;
    const auto [base, size] = *range;
    free_addresses_.erase(range);
    if (size > bytes) free_addresses_.emplace(base + bytes, size - bytes);
    address = base;
    return true;
  }
  return false;
}

bool Arena::take_addresses_at(std::uint64_t address, std::uint64_t bytes) {
  const auto after = free_addresses_.upper_bound(address);
  if (after == free_addresses_.begin() || bytes == 0) return false;
  const auto range = std::prev(after);
  const auto [base, size] = *range;
  const std::uint64_t before = address - base;
  if (before > size || bytes > size - before) return false;
  free_addresses_.erase(range);
  if (before != 0) free_addresses_.emplace(base, before);
  if (before + bytes < size) free_addresses_.emplace(address + bytes, size - before - bytes);
  return true;
}

void Arena::give_addresses(std::uint64_t address, std::uint64_t bytes) {
  insert_range(free_addresses_, address, bytes);
}

}  // namespace flyt::server
