// Copies between host and device memory, one to three dimensions.
#include "client/hooks_copy.h"

#include "client/call.h"
#include "client/memory_state.h"
#include "client/transfers/box_copy.h"
#include "cuda/batch_copy.h"
#include "cuda/default_stream.h"

namespace flyt::client::hooks {
namespace {

// What one end of a flat copy may be.
enum class End : std::uint8_t {
  kKnown,  // Device memory or page-locked host memory.
  kAny,    // Any host memory too.
  kHost,   // As well, and said to be host memory.
};

// False for what native refuses.
bool make_end(std::uint64_t address, std::uint64_t bytes, End end, BoxSide::Use use,
              BoxSide& side) {
  std::uint64_t last = 0;
  if (address == 0 || __builtin_add_overflow(address, bytes - 1, &last)) return false;
  side.address = address;
  side.pitch = side.slice_pitch = bytes;
  const MemoryMap::Placed placed = session().memory().map().place(address, bytes);
  if (placed.place == MemoryMap::Place::kPageable && end == End::kKnown) return false;
  const auto said = end == End::kHost ? BoxSide::Said::kHost : BoxSide::Said::kUnified;
  return side.place_in(placed, said, use);
}

CUresult flat(std::uint64_t to, End to_end, std::uint64_t from, End from_end, std::uint64_t bytes,
              CUstream stream, Waiting waiting) {
  if (const CUresult result = check(stream); result != CUDA_SUCCESS) return result;
  std::uint64_t graph = 0;
  Transfers& transfers = session().memory().transfers();
  const CUresult no = transfers.look_for_captures(stream, waiting, graph);
  if (no != CUDA_SUCCESS || bytes == 0) return no;
  BoxCopy copy;
  copy.width = bytes;
  copy.rows = copy.slices = 1;
  if (!make_end(to, bytes, to_end, BoxSide::Use::kWrite, copy.to) ||
      !make_end(from, bytes, from_end, BoxSide::Use::kRead, copy.from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return transfers.run(copy, stream, waiting, graph);
}

// 2D and 3D: `description` as the program gave it.
template <class Description>
CUresult box(const Description* description, CUstream stream, Waiting waiting) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check(stream); result != CUDA_SUCCESS) return result;
  MemoryState& memory = session().memory();
  std::uint64_t graph = 0;
  const CUresult no = memory.transfers().look_for_captures(stream, waiting, graph);
  if (no != CUDA_SUCCESS) return no;
  BoxCopy copy;
  const CUresult result = make_box_copy({memory.map(), memory.images.arrays}, *description, copy);
  return result == CUDA_SUCCESS ? memory.transfers().run(copy, stream, waiting, graph) : result;
}

Waiting waiting_of(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? Waiting::kSource : Waiting::kStream;
}

bool legacy_or_null(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

// A batch wants a current context of the thread's own, whatever its stream brings along, and is
// INVALID_VALUE without.
template <class Body>
CUresult with_context_of_batch(CUstream stream, Body&& body) {
  if (thread_state().current_state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ContextScope scope(home_of(stream));
  const CUresult no = enter(Needs::kContext);
  return no == CUDA_SUCCESS ? body() : no;
}

// Each copy of a batch on its own, which keeps the order that any of them may rely on.
CUresult batch(const CUdeviceptr* dsts, const CUdeviceptr* srcs, const size_t* sizes, size_t count,
               const CUmemcpyAttributes* attrs, const size_t* attrs_idxs, size_t num_attrs,
               size_t* fail, CUstream stream) {
  if (fail != nullptr) *fail = ~std::size_t{0};
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 || attrs == nullptr ||
      attrs_idxs == nullptr || num_attrs == 0 || num_attrs > count || attrs_idxs[0] != 0 ||
      legacy_or_null(stream)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < num_attrs; ++i) {
    if (!cuda::good_attributes(attrs[i], session().devices().count())) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  std::size_t kind = 0;  // Attributes hold from the copy on that their index tells.
  for (std::size_t i = 0; i < count; ++i) {
    while (kind + 1 < num_attrs && attrs_idxs[kind + 1] <= i) ++kind;
    const CUresult result = sizes[i] == 0 ? CUDA_ERROR_INVALID_VALUE
                                          : flat(dsts[i], End::kAny, srcs[i], End::kAny, sizes[i],
                                                 stream, waiting_of(attrs[kind].srcAccessOrder));
    if (result == CUDA_SUCCESS) continue;
    if (fail != nullptr) *fail = i;
    return result;
  }
  return CUDA_SUCCESS;
}

// With an array among the operands widths count its elements, else bytes.
CUresult element_bytes(const CUDA_MEMCPY3D_BATCH_OP& operation, std::size_t& bytes) {
  for (const CUmemcpy3DOperand* operand : {&operation.src, &operation.dst}) {
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
    const ArrayState* array =
        session().memory().images.arrays.find(address_of(cuda::array_of(*operand)));
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    bytes = array->extent.texel_bytes;
  }
  return CUDA_SUCCESS;
}

CUresult one_of_batch(const CUDA_MEMCPY3D_BATCH_OP& operation, CUstream stream) {
  std::size_t bytes = 1;
  CUDA_MEMCPY3D copy{};
  CUresult result = element_bytes(operation, bytes);
  if (result == CUDA_SUCCESS) result = cuda::describe_batch_copy(operation, bytes, copy);
  return result == CUDA_SUCCESS ? box(&copy, stream, waiting_of(operation.srcAccessOrder)) : result;
}

CUresult batch_3d(size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, size_t* fail,
                  unsigned long long flags, CUstream stream) {
  if (fail != nullptr) *fail = ~std::size_t{0};
  if (count == 0 || operations == nullptr || flags != 0 || legacy_or_null(stream)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result = one_of_batch(operations[i], stream);
    if (result == CUDA_SUCCESS) continue;
    if (fail != nullptr && !cuda::names_nothing(operations[i])) *fail = i;
    return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return flat(dst, End::kAny, src, End::kAny, ByteCount, nullptr, Waiting::kStaged);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return flat(dstDevice, End::kKnown, address_of(srcHost), End::kHost, ByteCount, nullptr,
              Waiting::kStaged);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return flat(address_of(dstHost), End::kHost, srcDevice, End::kKnown, ByteCount, nullptr,
              Waiting::kStaged);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return flat(dstDevice, End::kKnown, srcDevice, End::kKnown, ByteCount, nullptr, Waiting::kStaged);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return box(pCopy, nullptr, Waiting::kStaged); }

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return box(pCopy, nullptr, Waiting::kStaged);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return box(pCopy, nullptr, Waiting::kStaged); }

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return flat(dst, End::kAny, src, End::kAny, ByteCount, hStream, Waiting::kStream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return flat(dstDevice, End::kKnown, address_of(srcHost), End::kHost, ByteCount, hStream,
              Waiting::kStream);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return flat(address_of(dstHost), End::kHost, srcDevice, End::kKnown, ByteCount, hStream,
              Waiting::kStream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return flat(dstDevice, End::kKnown, srcDevice, End::kKnown, ByteCount, hStream, Waiting::kStream);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return box(pCopy, hStream, Waiting::kStream);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return box(pCopy, hStream, Waiting::kStream);
}

// Of the batches only those of before _v2 know a thread's own default stream, as natively.
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  return with_context_of_batch(hStream, [&] {
    return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, nullptr, hStream);
  });
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  return with_context_of_batch(hStream, [&] {
    return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx,
                 cuda::resolve_default(hStream));
  });
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  return with_context_of_batch(hStream,
                               [&] { return batch_3d(numOps, opList, nullptr, flags, hStream); });
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  return with_context_of_batch(hStream, [&] {
    return batch_3d(numOps, opList, failIdx, flags, cuda::resolve_default(hStream));
  });
}

}  // namespace flyt::client::hooks
