// Pools: stream-ordered allocation, kept by ourselves over the arena.
#include "server/memory/pools.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/context_subjects.h"
#include "server/session.h"
#include "wire/handle.h"

namespace flyt::server {
namespace {

// Small numbers name the default pools of the devices.
constexpr std::uint64_t kDefaultPoolsMax = 64;

bool is_default_pool(std::uint64_t pool) { return pool >= 1 && pool <= kDefaultPoolsMax; }

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

CUresult Pools::create(std::uint64_t pool, CUdevice device, std::uint64_t bytes_max) {
  if (!wire::Handle{pool}.valid_as(wire::HandleKind::kPool)) return CUDA_ERROR_INVALID_HANDLE;
  const Lock lock(mutex_);
  if (pools_.size() >= kPoolsMax) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto [at, inserted] = pools_.try_emplace(pool);
  if (!inserted) return CUDA_ERROR_INVALID_HANDLE;
  at->second.device = device;
  at->second.bytes_max = bytes_max;
  return CUDA_SUCCESS;
}

CUresult Pools::destroy(std::uint64_t pool) {
  std::vector<Arena::Allocation> shed_chunks;
  {
    const Lock lock(mutex_);
    const auto found = pools_.find(pool);
    if (found == pools_.end() || is_default_pool(pool)) return CUDA_ERROR_INVALID_VALUE;
    found->second.dying = true;
    found->second.release_threshold = 0;
    shed_chunks = shed(found->second, 0);
    if (found->second.chunks.empty()) {
      pools_.erase(found);
    } else {
      maybe_excess_.store(true);
    }
  }
  give_back(shed_chunks);
  return CUDA_SUCCESS;
}

Pools::Pool* Pools::find(std::uint64_t pool) {
  const auto found = pools_.find(pool);
  if (found != pools_.end()) return found->second.dying ? nullptr : &found->second;
  if (!is_default_pool(pool)) return nullptr;
  Pool& made = pools_[pool];
  made.device = static_cast<CUdevice>(pool - 1);
  return &made;
}

std::optional<CUdevice> Pools::device_of(std::uint64_t pool) {
  const Lock lock(mutex_);
  const Pool* found = find(pool);
  return found == nullptr ? std::nullopt : std::optional<CUdevice>(found->device);
}

CUresult Pools::take(std::uint64_t pool, std::uint64_t bytes, const StreamPlace& place,
                     Allocation& out) {
  const Lock lock(mutex_);
  Pool* found = find(pool);
  if (found == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // The rounding below must not wrap.
  if (bytes > ~std::uint64_t{0} - kChunkBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  if (found->bytes_max != 0 && bytes > found->bytes_max) return CUDA_ERROR_OUT_OF_MEMORY;
  return take_locked(*found, bytes, place, false, out) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult Pools::allocate(std::uint64_t pool, std::uint64_t bytes, const StreamPlace& place,
                         Allocation& out) {
  CUresult result = take(pool, bytes, place, out);
  if (result != CUDA_ERROR_NOT_READY) return result;
  result = grow(pool, bytes, session_.contexts().home_of(place.context));
  const Lock lock(mutex_);
  Pool* found = find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // What others have freed, behind a wait for them, is the last resort.
  if (take_locked(*found, bytes, place, true, out)) return CUDA_SUCCESS;
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

bool Pools::take_locked(Pool& pool, std::uint64_t bytes, const StreamPlace& place, bool may_wait,
                        Allocation& out) {
  const std::uint64_t footprint = round_up(bytes, Arena::kAlignment);
  const auto fits = [&](const Freed& freed) { return freed.bytes >= footprint; };
  for (auto at = pool.freed.begin(); at != pool.freed.end(); ++at) {
    if (fits(at->second) && (at->second.fence == nullptr || at->second.place == place)) {
      use(pool, at, bytes, out);
      return true;
    }
  }
  if (pool.opportunistic || may_wait) {
    settle(pool);
    for (auto at = pool.freed.begin(); at != pool.freed.end(); ++at) {
      if (!fits(at->second) || at->second.fence != nullptr) continue;
      use(pool, at, bytes, out);
      return true;
    }
  }
  if (!may_wait || !pool.internal_dependencies) return false;
  for (auto at = pool.freed.begin(); at != pool.freed.end(); ++at) {
    if (!fits(at->second)) continue;
    const CUevent event = at->second.fence->event();
    if (session_.driver().cuStreamWaitEvent(place.stream, event, 0) != CUDA_SUCCESS) continue;
    // From here on this stream's order keeps the uses of the whole range apart.
    at->second.place = place;
    use(pool, at, bytes, out);
    return true;
  }
  return false;
}

void Pools::use(Pool& pool, std::map<std::uint64_t, Freed>::iterator freed, std::uint64_t bytes,
                Allocation& out) {
  const std::uint64_t footprint = round_up(bytes, Arena::kAlignment);
  const std::uint64_t address = freed->first;
  Freed rest = std::move(freed->second);
  pool.freed.erase(freed);
  if (rest.bytes > footprint) {
    rest.bytes -= footprint;
    pool.freed.emplace(address + footprint, std::move(rest));
  }
  pool.live.emplace(address, Live{bytes, footprint});
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  const auto chunk = std::prev(pool.chunks.upper_bound(address));
  out = {address, chunk->second.address, chunk->second.block_bytes, chunk->second.block_id};
  const auto name = std::find_if(pools_.begin(), pools_.end(),
                                 [&](const auto& entry) { return &entry.second == &pool; });
  pool_of_[address] = name->first;
}

CUresult Pools::grow(std::uint64_t pool_name, std::uint64_t bytes, std::uint32_t context) {
  const std::uint64_t wanted = round_up(bytes, kChunkBytes);
  CUdevice device = 0;
  {
    const Lock lock(mutex_);
    Pool* pool = find(pool_name);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (pool->bytes_max != 0 && wanted > round_up(pool->bytes_max, kChunkBytes) - pool->reserved) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device = pool->device;
  }
  Arena::Allocation chunk;
  Arena::Wanted chunk_wanted{device, wanted, Arena::kPoolOwner, context};
  CUresult result = arena_.allocate(chunk_wanted, chunk);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && wanted > round_up(bytes, Arena::kBlockBytes)) {
    // The last of a full device is not to be lost to rounding.
    chunk_wanted.bytes = round_up(bytes, Arena::kBlockBytes);
    result = arena_.allocate(chunk_wanted, chunk);
  }
  if (result != CUDA_SUCCESS) return result;
  const Lock lock(mutex_);
  Pool* pool = find(pool_name);
  if (pool == nullptr) {
    give_back({chunk});
    return CUDA_ERROR_INVALID_VALUE;
  }
  pool->reserved += chunk.block_bytes;
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  pool->chunks.emplace(chunk.address, chunk);
  pool->freed.emplace(chunk.address, Freed{chunk.block_bytes, {}, nullptr});
  return CUDA_SUCCESS;
}

bool Pools::free(std::uint64_t address, const StreamPlace& place) {
  const Lock lock(mutex_);
  const auto retired = retire_locked(address);
  if (!retired) return false;
  // Without a fence the stream or its context is broken: nothing uses the memory any more.
  CUresult result = CUDA_SUCCESS;
  recycle_locked(*retired, place, events_.record(place.context, place.stream, result));
  return true;
}

std::optional<Pools::Retired> Pools::retire(std::uint64_t address) {
  const Lock lock(mutex_);
  return retire_locked(address);
}

void Pools::recycle(const Retired& retired) {
  const Lock lock(mutex_);
  recycle_locked(retired, {}, nullptr);
}

std::optional<Pools::Retired> Pools::retire_locked(std::uint64_t address) {
  const auto owner = pool_of_.find(address);
  if (owner == pool_of_.end()) return std::nullopt;
  Pool& pool = pools_.at(owner->second);
  const auto live = pool.live.find(address);
  const Retired retired{owner->second, address, live->second.footprint};
  pool.used -= live->second.bytes;
  pool.live.erase(live);
  pool_of_.erase(owner);
  return retired;
}

void Pools::recycle_locked(const Retired& retired, const StreamPlace& place,
                           std::shared_ptr<Fence> fence) {
  const auto found = pools_.find(retired.pool);
  if (found == pools_.end()) return;
  Pool& pool = found->second;
  // Its chunk may have died with a context meanwhile.
  const auto behind = pool.chunks.upper_bound(retired.address);
  if (behind == pool.chunks.begin()) return;
  const Arena::Allocation& chunk = std::prev(behind)->second;
  if (retired.address - chunk.address >= chunk.block_bytes) return;
  insert(pool, retired.address, Freed{retired.footprint, place, std::move(fence)});
  if (pool.reserved > pool.release_threshold) maybe_excess_.store(true);
}

void Pools::insert(Pool& pool, std::uint64_t address, Freed freed) {
  // Neighbours join if the newer fence tells of both: both passed, or both freed in one stream.
  const auto joinable = [&](std::uint64_t left, const Freed& a, std::uint64_t right,
                            const Freed& b) {
    if (left + a.bytes != right || pool.chunks.contains(right)) return false;
    if (a.fence == nullptr && b.fence == nullptr) return true;
    return a.fence != nullptr && b.fence != nullptr && a.place == b.place && a.place.context != 0;
  };
  const auto next = pool.freed.lower_bound(address);
  if (next != pool.freed.end() && joinable(address, freed, next->first, next->second)) {
    freed.bytes += next->second.bytes;
    pool.freed.erase(next);
  }
  const auto after = pool.freed.lower_bound(address);
  if (after != pool.freed.begin()) {
    const auto before = std::prev(after);
    if (joinable(before->first, before->second, address, freed)) {
      before->second.bytes += freed.bytes;
      before->second.fence = std::move(freed.fence);
      return;
    }
  }
  pool.freed.emplace(address, std::move(freed));
}

void Pools::settle(Pool& pool) {
  std::vector<std::uint64_t> passed;
  for (const auto& [address, freed] : pool.freed) {
    if (freed.fence != nullptr && freed.fence->poll() != CUDA_ERROR_NOT_READY) {
      passed.push_back(address);
    }
  }
  for (const std::uint64_t address : passed) {
    const auto at = pool.freed.find(address);
    const std::uint64_t bytes = at->second.bytes;
    pool.freed.erase(at);
    insert(pool, address, Freed{bytes, {}, nullptr});
  }
}

CUresult Pools::restore(std::uint64_t pool_name, std::uint64_t address, std::uint64_t bytes,
                        Allocation& out) {
  const Lock lock(mutex_);
  Pool* const pool = find(pool_name);
  if (pool == nullptr || bytes == 0 || address % Arena::kAlignment != 0 ||
      bytes > ~std::uint64_t{0} - Arena::kAlignment) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t footprint = round_up(bytes, Arena::kAlignment);
  if (restore_chunk(*pool, address) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto behind = pool->freed.upper_bound(address);
  if (behind == pool->freed.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto around = std::prev(behind);
  const std::uint64_t before = address - around->first;
  if (around->second.fence != nullptr || before > around->second.bytes ||
      footprint > around->second.bytes - before) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Cut off what lies before it; use() cuts off what lies behind.
  Freed rest{around->second.bytes - before, {}, nullptr};
  around->second.bytes = before;
  if (before == 0) pool->freed.erase(around);
  use(*pool, pool->freed.emplace(address, std::move(rest)).first, bytes, out);
  return CUDA_SUCCESS;
}

const Arena::Allocation* Pools::restore_chunk(Pool& pool, std::uint64_t address) {
  const auto behind = pool.chunks.upper_bound(address);
  if (behind != pool.chunks.begin()) {
    const Arena::Allocation& chunk = std::prev(behind)->second;
    if (address - chunk.address < chunk.block_bytes) return &chunk;
  }
  const auto block = arena_.mapped_around(address);
  if (!block || block->slab || block->device != pool.device) return nullptr;
  const auto chunk =
      arena_.restore(block->address, {pool.device, block->bytes, Arena::kPoolOwner, 0});
  if (!chunk) return nullptr;
  pool.reserved += chunk->block_bytes;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  pool.freed.emplace(chunk->address, Freed{chunk->block_bytes, {}, nullptr});
  return &pool.chunks.emplace(chunk->address, *chunk).first->second;
}

CUresult Pools::get(std::uint64_t pool, CUmemPool_attribute attribute, std::uint64_t& value) {
  const Lock lock(mutex_);
  const Pool* found = find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES) {
    value = found->follow_dependencies ? 1 : 0;
  } else if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) {
    value = found->opportunistic ? 1 : 0;
  } else if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    value = found->internal_dependencies ? 1 : 0;
  } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    value = found->release_threshold;
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) {
    value = found->reserved;
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
    value = found->reserved_high;
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
    value = found->used;
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    value = found->used_high;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Pools::set(std::uint64_t pool, CUmemPool_attribute attribute, std::uint64_t value) {
  const Lock lock(mutex_);
  Pool* found = find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES) {
    found->follow_dependencies = value != 0;
  } else if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) {
    found->opportunistic = value != 0;
  } else if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    found->internal_dependencies = value != 0;
  } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    found->release_threshold = value;
    maybe_excess_.store(true);
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && value == 0) {
    found->reserved_high = found->reserved;
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && value == 0) {
    found->used_high = found->used;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Pools::trim(std::uint64_t pool, std::uint64_t bytes_to_keep) {
  std::vector<Arena::Allocation> chunks;
  {
    const Lock lock(mutex_);
    Pool* found = find(pool);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    chunks = shed(*found, bytes_to_keep);
  }
  give_back(chunks);
  return CUDA_SUCCESS;
}

std::vector<Arena::Allocation> Pools::shed(Pool& pool, std::uint64_t bytes_to_keep) {
  settle(pool);
  std::vector<Arena::Allocation> chunks;
  for (auto at = pool.chunks.begin(); at != pool.chunks.end();) {
    const Arena::Allocation chunk = at->second;
    if (pool.reserved <= bytes_to_keep) break;
    ++at;
    // insert() joins no ranges across chunks, so an unused chunk is exactly one range.
    const auto whole = pool.freed.find(chunk.address);
    if (whole == pool.freed.end() || whole->second.bytes != chunk.block_bytes ||
        whole->second.fence != nullptr || pool.reserved - chunk.block_bytes < bytes_to_keep) {
      continue;
    }
    pool.freed.erase(whole);
    pool.chunks.erase(chunk.address);
    pool.reserved -= chunk.block_bytes;
    chunks.push_back(chunk);
  }
  return chunks;
}

void Pools::give_back(const std::vector<Arena::Allocation>& chunks) {
  for (const Arena::Allocation& chunk : chunks) {
    if (const auto retired = arena_.retire(chunk.address)) arena_.recycle(*retired);
  }
}

void Pools::forget_chunks(const std::vector<Arena::Allocation>& chunks) {
  const Lock lock(mutex_);
  const auto erase_range = [](auto& ranges, std::uint64_t begin, std::uint64_t end) {
    ranges.erase(ranges.lower_bound(begin), ranges.lower_bound(end));
  };
  for (const Arena::Allocation& chunk : chunks) {
    const std::uint64_t end = chunk.address + chunk.block_bytes;
    for (auto& [name, pool] : pools_) {
      if (pool.chunks.erase(chunk.address) == 0) continue;
      pool.reserved -= chunk.block_bytes;
      for (auto live = pool.live.lower_bound(chunk.address);
           live != pool.live.end() && live->first < end; ++live) {
        pool.used -= live->second.bytes;
      }
      erase_range(pool.freed, chunk.address, end);
      erase_range(pool.live, chunk.address, end);
    }
    erase_range(pool_of_, chunk.address, end);
  }
}

void Pools::forget_stream(CUstream stream) {
  const Lock lock(mutex_);
  for (auto& [name, pool] : pools_) {
    for (auto& [address, freed] : pool.freed) {
      if (freed.place.stream == stream) freed.place = {};
    }
  }
}

void Pools::rename_stream(const StreamPlace& old, CUstream fresh) {
  const Lock lock(mutex_);
  for (auto& [name, pool] : pools_) {
    for (auto& [address, freed] : pool.freed) {
      if (freed.place == old) freed.place.stream = fresh;
    }
  }
}

void Pools::release_excess() {
  if (!maybe_excess_.exchange(false)) return;
  std::vector<Arena::Allocation> chunks;
  {
    const Lock lock(mutex_);
    for (auto at = pools_.begin(); at != pools_.end();) {
      Pool& pool = at->second;
      const auto shed_chunks = shed(pool, pool.release_threshold);
      chunks.insert(chunks.end(), shed_chunks.begin(), shed_chunks.end());
      // What is freed but not yet passed is looked at again after the next wait.
      if (!pool.freed.empty() && pool.reserved > pool.release_threshold) maybe_excess_.store(true);
      at = pool.dying && pool.chunks.empty() ? pools_.erase(at) : std::next(at);
    }
  }
  give_back(chunks);
}

}  // namespace flyt::server
