// Stream operations that wait for or write words in memory.
#include "softgpu/memop.h"

#include "softgpu/abi/enter.h"
#include "softgpu/capture.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kBatchMax = 255;

CUresult submit(Driver& driver, const StreamOfCall& stream, std::vector<MemoryWord> words) {
  if (words.empty()) return CUDA_SUCCESS;
  if (stream.stream->capturing()) {
    return capture_words(driver, *stream.stream, *stream.context, std::move(words));
  }
  for (const MemoryWord& word : words) {
    stream.submit([word, fate = stream.context->fate(), &regions = driver.regions()] {
      run_word(*fate, regions, word);
    });
  }
  return CUDA_SUCCESS;
}

// The calls of before _v2, as of NVIDIA's driver that is not told otherwise.
CUresult not_supported() {
  return with_driver([](Driver&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult run(CUstream handle, const MemoryWord& word) {
  return with_work(handle, [&](Driver& driver, Context&, const StreamOfCall& stream) {
    const CUresult bad = check_word(driver.regions(), word);
    return bad != CUDA_SUCCESS ? bad : submit(driver, stream, {word});
  });
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
  return with_work(stream, [&](Driver& driver, Context&, const StreamOfCall& found) -> CUresult {
    if (count > kBatchMax || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (count != 0 && paramArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<MemoryWord> words;
    const CUresult bad = read_batch(driver.regions(), {paramArray, count}, words);
    return bad != CUDA_SUCCESS ? bad : submit(driver, found, std::move(words));
  });
}

CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned int) {
  return not_supported();
}

CUresult cuStreamWaitValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned int) {
  return not_supported();
}

CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned int) {
  return not_supported();
}

CUresult cuStreamWriteValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned int) {
  return not_supported();
}

CUresult cuStreamBatchMemOp(CUstream, unsigned int, CUstreamBatchMemOpParams*, unsigned int) {
  return not_supported();
}

}  // extern "C"
