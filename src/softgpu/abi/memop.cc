// Stream operations that wait for or write words in memory.
#include <atomic>

#include "base/clock.h"
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kBatchMax = 256;

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
void wait(const Fate& fate, const Regions& regions, CUdeviceptr address, std::uint64_t value,
          unsigned condition, bool wide) {
  constexpr Duration kFirst = std::chrono::microseconds(2);
  constexpr Duration kLast = std::chrono::microseconds(500);
  Duration pause = kFirst;
  while (!fate.ended() && fate.error() == CUDA_SUCCESS) {
    if (!regions.covers(address, wide ? 8 : 4, false)) return;
    if (holds(load(address, wide), value, condition, wide)) return;
    system_clock().sleep_for(pause);
    pause = std::min(pause * 2, kLast);
  }
}

struct Word {
  CUdeviceptr address = 0;
  std::uint64_t value = 0;
  unsigned flags = 0;
  bool wide = false;
  bool write = false;
};

CUresult check(const Driver&, const Regions& regions, const Word& word) {
  const unsigned bytes = word.wide ? 8 : 4;
  if (word.address % bytes != 0 || !regions.covers(word.address, bytes, word.write)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (word.write) {
    return (word.flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  }
  if ((word.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return word.flags <= CU_STREAM_WAIT_VALUE_NOR ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void submit(Driver& driver, const StreamOfCall& stream, const Word& word) {
  stream.submit([word, fate = stream.context->fate(), &regions = driver.regions()] {
    if (!word.write) {
      wait(*fate, regions, word.address, word.value, word.flags, word.wide);
    } else if (regions.covers(word.address, word.wide ? 8 : 4, true)) {
      store(word.address, word.value, word.wide);
    } else {
      fate->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
  });
}

CUresult run(CUstream handle, const Word& word) {
  return with_stream(handle, [&](Driver& driver, Context&, const StreamOfCall& stream) {
    const CUresult bad = check(driver, driver.regions(), word);
    if (bad == CUDA_SUCCESS) submit(driver, stream, word);
    return bad;
  });
}

// One entry of a batch; barriers and flushes need nothing here.
CUresult read_entry(const CUstreamBatchMemOpParams& entry, Word& word, bool& nothing) {
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
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return run(stream, {addr, value, flags, false, false});
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return run(stream, {addr, value, flags, true, false});
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return run(stream, {addr, value, flags, false, true});
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return run(stream, {addr, value, flags, true, true});
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return with_stream(stream, [&](Driver& driver, Context&, const StreamOfCall& found) -> CUresult {
    if (count > kBatchMax || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (count != 0 && paramArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<Word> words;
    for (unsigned i = 0; i < count; ++i) {
      Word word;
      bool nothing = false;
      CUresult bad = read_entry(paramArray[i], word, nothing);
      if (bad == CUDA_SUCCESS && nothing) continue;
      if (bad == CUDA_SUCCESS) bad = check(driver, driver.regions(), word);
      if (bad != CUDA_SUCCESS) return bad;
      words.push_back(word);
    }
    for (const Word& word : words) submit(driver, found, word);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags) {
  return cuStreamWaitValue32_v2(stream, addr, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags) {
  return cuStreamWaitValue64_v2(stream, addr, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags) {
  return cuStreamWriteValue32_v2(stream, addr, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags) {
  return cuStreamWriteValue64_v2(stream, addr, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}

}  // extern "C"
