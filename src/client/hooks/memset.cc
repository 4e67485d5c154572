// Filling device memory.
#include "client/hooks_memset.h"

#include <algorithm>
#include <cstring>

#include "client/call.h"
#include "client/memory_state.h"
#include "client/streams/stream_wait.h"
#include "commands/memset.h"

namespace flyt::client::hooks {
namespace {

struct Fill {
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 1;
  std::uint64_t width = 0;  // In elements.
  std::uint64_t rows = 1;
};

void fill_host(const Fill& fill) {
  for (std::uint64_t row = 0; row < fill.rows; ++row) {
    auto* at = static_cast<std::byte*>(pointer_at(fill.address + row * fill.pitch));
    for (std::uint64_t i = 0; i < fill.width; ++i) {
      std::memcpy(at + i * fill.element_bytes, &fill.value, fill.element_bytes);
    }
  }
}

CUresult fill_on_device(const Fill& fill, const Memory& memory, std::uint64_t bytes,
                        CUstream stream, Waiting waiting) {
  give_work(stream);
  const std::uint64_t address = memory.device_address(fill.address);
  if (memory.mirrored) session().memory().mirror().send(address, bytes);
  const CUresult result = post(commands::FillMemory{.stream = stream,
                                                    .address = address,
                                                    .pitch = fill.pitch,
                                                    .value = fill.value,
                                                    .element_bytes = fill.element_bytes,
                                                    .width = fill.width,
                                                    .rows = fill.rows});
  // The program may look at it when the call returns, if it can look at it at all.
  const bool waits = memory.mirrored && waiting == Waiting::kStaged;
  return result == CUDA_SUCCESS && waits ? synchronize(session(), stream) : result;
}

CUresult run(const Fill& fill, CUstream stream, Waiting waiting) {
  if (const CUresult result = check(stream); result != CUDA_SUCCESS) return result;
  if (waiting == Waiting::kStaged) {
    std::uint64_t graph = 0;
    const CUresult no = session().memory().transfers().look_for_captures(stream, waiting, graph);
    if (no != CUDA_SUCCESS) return no;
  }
  if (fill.width == 0 || fill.rows == 0) return CUDA_SUCCESS;
  // The product may wrap, and does so natively too.
  const std::uint64_t width_bytes = fill.width * fill.element_bytes;
  const bool aligned = fill.address % fill.element_bytes == 0 &&
                       (fill.rows == 1 || fill.pitch % fill.element_bytes == 0);
  if (!aligned || (fill.rows > 1 && fill.pitch < width_bytes)) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(fill.pitch, fill.rows - 1, &bytes) ||
      __builtin_add_overflow(bytes, width_bytes, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryState& memory = session().memory();
  MemoryMap::Placed placed = memory.map().place(fill.address, std::max<std::uint64_t>(bytes, 1));
  if (!placed.on_gpu_or_pinned() || !placed.writable) return CUDA_ERROR_INVALID_VALUE;
  if (width_bytes == 0) return CUDA_SUCCESS;
  const bool pages = placed.place == MemoryMap::Place::kPinned && !placed.memory.mirrored;
  if (pages && session().captures().any()) {
    // A captured one is done by the GPU, wherever the memory is.
    static_cast<void>(memory.mirror().begin(fill.address));
    placed = memory.map().place(fill.address, bytes);
  }
  Fill whole = fill;
  whole.width = width_bytes / fill.element_bytes;
  if (placed.place == MemoryMap::Place::kDevice || placed.memory.mirrored) {
    return fill_on_device(whole, placed.memory, bytes, stream, waiting);
  }
  // The pages are ours: they are filled here, when the stream has come this far.
  const CUresult result = synchronize(session(), stream);
  if (result == CUDA_SUCCESS) fill_host(whole);
  return result;
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return run({dstDevice, 0, uc, 1, N, 1}, nullptr, Waiting::kStaged);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return run({dstDevice, 0, us, 2, N, 1}, nullptr, Waiting::kStaged);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return run({dstDevice, 0, ui, 4, N, 1}, nullptr, Waiting::kStaged);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return run({dstDevice, dstPitch, uc, 1, Width, Height}, nullptr, Waiting::kStaged);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  return run({dstDevice, dstPitch, us, 2, Width, Height}, nullptr, Waiting::kStaged);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return run({dstDevice, dstPitch, ui, 4, Width, Height}, nullptr, Waiting::kStaged);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return run({dstDevice, 0, uc, 1, N, 1}, hStream, Waiting::kStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return run({dstDevice, 0, us, 2, N, 1}, hStream, Waiting::kStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return run({dstDevice, 0, ui, 4, N, 1}, hStream, Waiting::kStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  return run({dstDevice, dstPitch, uc, 1, Width, Height}, hStream, Waiting::kStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  return run({dstDevice, dstPitch, us, 2, Width, Height}, hStream, Waiting::kStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  return run({dstDevice, dstPitch, ui, 4, Width, Height}, hStream, Waiting::kStream);
}

}  // namespace flyt::client::hooks
