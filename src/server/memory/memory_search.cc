#include "server/memory/memory_search.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/assert.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t kFoundBytes = 16;
constexpr unsigned kThreads = 256;
// Enough to keep any GPU busy.
constexpr std::uint64_t kBlocksMax = 2048;

// Each thread takes every so-manyth word. One between the first and the last range is looked for
// among them; which of several is told does not matter.
constexpr const char* kPtx = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry search(.param .u64 memory, .param .u64 end, .param .u64 ranges, .param .u32 count,
                       .param .u64 found)
{
  .reg .pred %out;
  .reg .b32 %low, %high, %middle, %count, %a, %b, %c;
  .reg .b64 %at, %end, %step, %ranges, %found, %first, %span, %word, %offset, %place, %bound;
  ld.param.u64 %at, [memory];
  ld.param.u64 %end, [end];
  ld.param.u64 %ranges, [ranges];
  ld.param.u32 %count, [count];
  ld.param.u64 %found, [found];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %c, %tid.x;
  mad.lo.u32 %a, %a, %b, %c;
  mul.wide.u32 %offset, %a, 8;
  add.u64 %at, %at, %offset;
  mov.u32 %c, %nctaid.x;
  mul.lo.u32 %c, %c, %b;
  mul.wide.u32 %step, %c, 8;
  ld.global.u64 %first, [%ranges];
  sub.u32 %a, %count, 1;
  mul.wide.u32 %offset, %a, 16;
  add.u64 %place, %ranges, %offset;
  ld.global.u64 %span, [%place+8];
  sub.u64 %span, %span, %first;
NEXT:
  setp.ge.u64 %out, %at, %end;
  @%out bra DONE;
  ld.global.u64 %word, [%at];
  add.u64 %at, %at, %step;
  sub.u64 %offset, %word, %first;
  setp.gt.u64 %out, %offset, %span;
  @%out bra NEXT;
  mov.u32 %low, 0;
  mov.u32 %high, %count;
HALVE:
  sub.u32 %a, %high, %low;
  setp.le.u32 %out, %a, 1;
  @%out bra COMPARE;
  shr.u32 %a, %a, 1;
  add.u32 %middle, %low, %a;
  mul.wide.u32 %offset, %middle, 16;
  add.u64 %place, %ranges, %offset;
  ld.global.u64 %bound, [%place];
  setp.le.u64 %out, %bound, %word;
  selp.u32 %low, %middle, %low, %out;
  selp.u32 %high, %high, %middle, %out;
  bra HALVE;
COMPARE:
  mul.wide.u32 %offset, %low, 16;
  add.u64 %place, %ranges, %offset;
  ld.global.u64 %bound, [%place+8];
  setp.gt.u64 %out, %word, %bound;
  @%out bra NEXT;
  st.global.u64 [%found], %word;
DONE:
  ret;
}
)";

Error refused(CUresult result) {
  return {ErrorCode::kUnsupported, "memory cannot be looked through: the driver answers " +
                                       std::to_string(static_cast<int>(result))};
}

}  // namespace

MemorySearch::~MemorySearch() {
  if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  if (host_ != nullptr) driver_.cuMemFreeHost(host_);
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
}

Status MemorySearch::begin(std::span<const AddressRange> ranges) {
  FLYT_ASSERT(!ranges.empty() && host_ == nullptr);
  const CUresult result = prepare(ranges);
  return result == CUDA_SUCCESS ? Status() : refused(result);
}

CUresult MemorySearch::prepare(std::span<const AddressRange> ranges) {
  CUresult result = driver_.cuModuleLoadData(&module_, kPtx);
  if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&kernel_, module_, "search");
  if (result == CUDA_SUCCESS) result = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  // Host memory takes nothing of what the session may have.
  const std::uint64_t bytes = kFoundBytes + ranges.size_bytes();
  if (result == CUDA_SUCCESS) {
    result = driver_.cuMemHostAlloc(&host_, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
  }
  CUdeviceptr at = 0;
  if (result == CUDA_SUCCESS) result = driver_.cuMemHostGetDevicePointer_v2(&at, host_, 0);
  if (result != CUDA_SUCCESS) return result;
  at_ = at;
  count_ = static_cast<std::uint32_t>(ranges.size());
  const MutableBytes memory = mutable_bytes_at(host_, bytes);
  std::memset(memory.data(), 0, kFoundBytes);
  std::memcpy(memory.data() + kFoundBytes, ranges.data(), ranges.size_bytes());
  return CUDA_SUCCESS;
}

Status MemorySearch::look(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t skipped = std::min((8 - address % 8) % 8, bytes);
  std::uint64_t memory = address + skipped;
  const std::uint64_t end = memory + (bytes - skipped) / 8 * 8;
  std::uint64_t ranges = at_ + kFoundBytes;
  while (memory < end) {
    std::uint64_t until = std::min(end, memory + kLaunchBytes);
    const std::uint64_t words = (until - memory) / 8;
    const auto blocks =
        static_cast<unsigned>(std::min((words + kThreads - 1) / kThreads, kBlocksMax));
    std::array<void*, 5> parameters = {&memory, &until, &ranges, &count_, &at_};
    const CUresult result = driver_.cuLaunchKernel(kernel_, blocks, 1, 1, kThreads, 1, 1, 0,
                                                   stream_, parameters.data(), nullptr);
    if (result != CUDA_SUCCESS) return refused(result);
    memory = until;
  }
  return {};
}

Result<std::uint64_t> MemorySearch::end() {
  if (const CUresult result = driver_.cuStreamSynchronize(stream_); result != CUDA_SUCCESS) {
    return refused(result);
  }
  std::uint64_t found = 0;
  std::memcpy(&found, host_, sizeof found);
  return found;
}

}  // namespace flyt::server
