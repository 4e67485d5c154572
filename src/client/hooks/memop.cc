// Stream operations that wait for or write words in memory.
#include "client/hooks_memop.h"

#include <array>

#include "client/call.h"
#include "client/memory_state.h"
#include "commands/memop.h"

namespace flyt::client::hooks {
namespace {

constexpr unsigned int kBatchMax = 255;
constexpr unsigned int kWaitKinds = 3;

struct Operation {
  CUstreamBatchMemOpType type{};
  CUdeviceptr address = 0;
  std::uint64_t value = 0;
  unsigned int flags = 0;
};

// Checks it, and brings its address to what kernels use.
CUresult prepare(Operation& operation) {
  const bool wide = operation.type == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    operation.type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  const bool waits = operation.type == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                     operation.type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  const bool writes = operation.type == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                      operation.type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  if (!waits && !writes) {
    return operation.type == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES ? CUDA_ERROR_NOT_SUPPORTED
                                                                  : CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t bytes = wide ? 8 : 4;
  if (operation.address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned int flush = waits ? CU_STREAM_WAIT_VALUE_FLUSH : 0U;
  if ((operation.flags & ~flush) > (waits ? kWaitKinds : 0U)) return CUDA_ERROR_INVALID_VALUE;
  if ((operation.flags & flush) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  MemoryState& memory = session().memory();
  MemoryMap::Placed placed = memory.map().place(operation.address, bytes);
  if (placed.place == MemoryMap::Place::kPinned && !placed.memory.mirrored) {
    const CUresult result = memory.mirror().begin(operation.address);
    if (result != CUDA_SUCCESS) return result;
    placed = memory.map().place(operation.address, bytes);
  }
  if (!placed.on_gpu_or_pinned() || !placed.memory.takes_words()) return CUDA_ERROR_INVALID_VALUE;
  operation.address = placed.memory.device_address(operation.address);
  return CUDA_SUCCESS;
}

// What comes behind it in a stream sees all that came before anyway.
bool is_barrier(const CUstreamBatchMemOpParams& parameters) {
  return parameters.operation == CU_STREAM_MEM_OP_BARRIER &&
         parameters.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
}

CUresult send(const Operation& operation, CUstream stream) {
  give_work(stream);
  return post(commands::StreamMemOp{.stream = stream,
                                    .operation = static_cast<std::uint32_t>(operation.type),
                                    .address = operation.address,
                                    .value = operation.value,
                                    .flags = operation.flags});
}

CUresult run(Operation operation, CUstream stream) {
  CUresult result = check(stream);
  if (result == CUDA_SUCCESS) result = prepare(operation);
  return result == CUDA_SUCCESS ? send(operation, stream) : result;
}

// All members of the union begin alike.
Operation operation_of(const CUstreamBatchMemOpParams& parameters) {
  Operation operation;
  operation.type = parameters.operation;
  operation.address = parameters.waitValue.address;
  operation.flags = parameters.waitValue.flags;
  const bool narrow = operation.type == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                      operation.type == CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.value = narrow ? parameters.waitValue.value : parameters.waitValue.value64;
  return operation;
}

}  // namespace

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return run({CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags}, stream);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return run({CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags}, stream);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return run({CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags}, stream);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return run({CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags}, stream);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  if (const CUresult result = check(stream); result != CUDA_SUCCESS) return result;
  if (count > kBatchMax || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  if (paramArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // All or nothing is done.
  std::array<Operation, kBatchMax> operations;
  unsigned int words = 0;
  for (unsigned int i = 0; i < count; ++i) {
    if (is_barrier(paramArray[i])) continue;
    Operation& operation = operations[words++];
    operation = operation_of(paramArray[i]);
    if (const CUresult result = prepare(operation); result != CUDA_SUCCESS) return result;
  }
  for (unsigned int i = 0; i < words; ++i) {
    const CUresult result = send(operations[i], stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
