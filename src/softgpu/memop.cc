#include "softgpu/memop.h"

#include <algorithm>
#include <atomic>

#include "base/bytes.h"
#include "base/clock.h"

namespace flyt::softgpu {
namespace {

bool holds(std::uint64_t found, std::uint64_t wanted, unsigned condition, bool wide) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      // Cyclic, as the counters that it waits for are.
      return wide ? static_cast<std::int64_t>(found - wanted) >= 0
                  : static_cast<std::int32_t>(static_cast<std::uint32_t>(found - wanted)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & wanted) != 0;
    default:
      return (~(found | wanted) & (wide ? ~std::uint64_t{0} : 0xFFFFFFFFu)) != 0;
  }
}

std::uint64_t load(CUdeviceptr address, bool wide) {
  if (wide) {
    auto* at = static_cast<std::uint64_t*>(pointer_at(address));
    return std::atomic_ref(*at).load(std::memory_order_acquire);
  }
  auto* at = static_cast<std::uint32_t*>(pointer_at(address));
  return std::atomic_ref(*at).load(std::memory_order_acquire);
}

void store(CUdeviceptr address, std::uint64_t value, bool wide) {
  if (wide) {
    auto* at = static_cast<std::uint64_t*>(pointer_at(address));
    std::atomic_ref(*at).store(value, std::memory_order_release);
    return;
  }
  auto* at = static_cast<std::uint32_t*>(pointer_at(address));
  std::atomic_ref(*at).store(static_cast<std::uint32_t>(value), std::memory_order_release);
}

// Anybody may write the word, the program itself included, so it is looked at again and again,
// ever more rarely.
void wait(const Fate& fate, const Regions& regions, const MemoryWord& word) {
  constexpr Duration kFirst = std::chrono::microseconds(2);
  constexpr Duration kLast = std::chrono::microseconds(500);
  Duration pause = kFirst;
  while (!fate.ended() && fate.error() == CUDA_SUCCESS) {
    if (!regions.covers(word.address, word.wide ? 8 : 4, false)) return;
    if (holds(load(word.address, word.wide), word.value, word.flags, word.wide)) return;
    system_clock().sleep_for(pause);
    pause = std::min(pause * 2, kLast);
  }
}

CUresult read_entry(const CUstreamBatchMemOpParams& entry, MemoryWord& word, bool& nothing) {
  switch (entry.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      word = {entry.waitValue.address, entry.waitValue.value, entry.waitValue.flags, false, false};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      word = {entry.waitValue.address, entry.waitValue.value64, entry.waitValue.flags, true, false};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      word = {entry.writeValue.address, entry.writeValue.value, entry.writeValue.flags, false,
              true};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      word = {entry.writeValue.address, entry.writeValue.value64, entry.writeValue.flags, true,
              true};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_BARRIER:
      nothing = true;
      return entry.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult check_word(const Regions& regions, const MemoryWord& word) {
  const unsigned bytes = word.wide ? 8 : 4;
  if (word.address % bytes != 0 || !regions.covers(word.address, bytes, false)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // As NVIDIA's driver has it.
  const auto region = regions.find(word.address);
  if (region && (region->managed || region->kind == RegionKind::kPool)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (word.write) return word.flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned kFlush = CU_STREAM_WAIT_VALUE_FLUSH;
  if ((word.flags & ~kFlush) > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  return (word.flags & kFlush) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult read_batch(const Regions& regions, std::span<const CUstreamBatchMemOpParams> batch,
                    std::vector<MemoryWord>& out) {
  for (const CUstreamBatchMemOpParams& entry : batch) {
    MemoryWord word;
    bool nothing = false;
    CUresult bad = read_entry(entry, word, nothing);
    if (bad == CUDA_SUCCESS && nothing) continue;
    if (bad == CUDA_SUCCESS) bad = check_word(regions, word);
    if (bad != CUDA_SUCCESS) return bad;
    out.push_back(word);
  }
  return CUDA_SUCCESS;
}

CUstreamBatchMemOpParams batch_entry(const MemoryWord& word) {
  CUstreamBatchMemOpParams entry{};
  if (word.write) {
    entry.writeValue.operation =
        word.wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    entry.writeValue.address = word.address;
    entry.writeValue.value64 = word.value;
    entry.writeValue.flags = word.flags;
  } else {
    entry.waitValue.operation =
        word.wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    entry.waitValue.address = word.address;
    entry.waitValue.value64 = word.value;
    entry.waitValue.flags = word.flags;
  }
  return entry;
}

void run_word(Fate& fate, const Regions& regions, const MemoryWord& word) {
  if (!word.write) {
    wait(fate, regions, word);
  } else if (regions.covers(word.address, word.wide ? 8 : 4, true)) {
    store(word.address, word.value, word.wide);
  } else {
    // Of what may be read, NVIDIA's driver finds out when it is done.
    const bool readable = regions.covers(word.address, word.wide ? 8 : 4, false);
    fate.fail(readable ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

}  // namespace flyt::softgpu
