// Copies between host and device memory, one to three dimensions.
#include "client/hooks_copy.h"

#include "client/box_copy.h"
#include "client/call.h"
#include "client/memory_state.h"

namespace flyt::client::hooks {
namespace {

// What one end of a flat copy may be.
enum class End : std::uint8_t {
  kKnown,  // Device memory or page-locked host memory.
  kAny,    // Any host memory too.
};

// False for what native refuses.
bool make_end(std::uint64_t address, std::uint64_t bytes, End end, BoxSide& side) {
  std::uint64_t last = 0;
  if (address == 0 || __builtin_add_overflow(address, bytes - 1, &last)) return false;
  side.address = address;
  side.pitch = side.slice_pitch = bytes;
  const MemoryMap::Placed placed = session().memory().map().place(address, bytes);
  const bool known = placed.place != MemoryMap::Place::kPageable || end == End::kAny;
  return known && side.place_in(placed);
}

CUresult flat(std::uint64_t to, End to_end, std::uint64_t from, End from_end, std::uint64_t bytes,
              CUstream stream, Waiting waiting) {
  if (const CUresult result = check(stream); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_SUCCESS;
  BoxCopy copy;
  copy.width = bytes;
  copy.rows = copy.slices = 1;
  if (!make_end(to, bytes, to_end, copy.to) || !make_end(from, bytes, from_end, copy.from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return session().memory().transfers().run(copy, stream, waiting);
}

// 2D and 3D: `description` as the program gave it.
template <class Description>
CUresult box(const Description* description, CUstream stream, Waiting waiting) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check(stream); result != CUDA_SUCCESS) return result;
  BoxCopy copy;
  MemoryState& memory = session().memory();
  const CUresult result = make_box_copy({memory.map(), memory.images.arrays}, *description, copy);
  return result == CUDA_SUCCESS ? memory.transfers().run(copy, stream, waiting) : result;
}

bool legacy_or_null(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

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
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result =
        flat(dsts[i], End::kAny, srcs[i], End::kAny, sizes[i], stream, Waiting::kStream);
    if (result == CUDA_SUCCESS) continue;
    if (fail != nullptr) *fail = i;
    return result;
  }
  return CUDA_SUCCESS;
}

// One operand of a 3D batch as a 3D copy names it.
struct Operand {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  CUdeviceptr address = 0;
  std::size_t pitch = 0;  // Rows and layers of 0 have no gaps.
  std::size_t height = 0;
  CUarray array = nullptr;
  CUoffset3D offset{};
};

bool take(const CUmemcpy3DOperand& given, Operand& out) {
  if (given.type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
    out.address = given.op.ptr.ptr;
    out.pitch = given.op.ptr.rowLength;
    out.height = given.op.ptr.layerHeight;
    return true;
  }
  if (given.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return false;
  out.type = CU_MEMORYTYPE_ARRAY;
  out.array = given.op.array.array;
  out.offset = given.op.array.offset;
  return true;
}

// With an array among the operands widths count its elements, else bytes.
CUresult element_bytes(const Operand& from, const Operand& to, std::size_t& bytes) {
  bytes = 1;
  for (const Operand* operand : {&from, &to}) {
    if (operand->type != CU_MEMORYTYPE_ARRAY) continue;
    const ArrayState* array = session().memory().images.arrays.find(address_of(operand->array));
    if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    bytes = array->extent.texel_bytes;
  }
  return CUDA_SUCCESS;
}

CUresult describe(const CUDA_MEMCPY3D_BATCH_OP& operation, CUDA_MEMCPY3D& copy) {
  Operand from;
  Operand to;
  if (!take(operation.src, from) || !take(operation.dst, to)) return CUDA_ERROR_INVALID_VALUE;
  std::size_t bytes = 1;
  if (const CUresult bad = element_bytes(from, to, bytes); bad != CUDA_SUCCESS) return bad;
  copy.srcMemoryType = from.type;
  copy.dstMemoryType = to.type;
  copy.srcDevice = from.address;
  copy.dstDevice = to.address;
  copy.srcArray = from.array;
  copy.dstArray = to.array;
  copy.srcHeight = from.height;
  copy.dstHeight = to.height;
  copy.srcY = from.offset.y;
  copy.dstY = to.offset.y;
  copy.srcZ = from.offset.z;
  copy.dstZ = to.offset.z;
  copy.Height = operation.extent.height;
  copy.Depth = operation.extent.depth;
  const bool fits = !__builtin_mul_overflow(operation.extent.width, bytes, &copy.WidthInBytes) &&
                    !__builtin_mul_overflow(from.pitch, bytes, &copy.srcPitch) &&
                    !__builtin_mul_overflow(to.pitch, bytes, &copy.dstPitch) &&
                    !__builtin_mul_overflow(from.offset.x, bytes, &copy.srcXInBytes) &&
                    !__builtin_mul_overflow(to.offset.x, bytes, &copy.dstXInBytes);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult batch_3d(size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, size_t* fail,
                  unsigned long long flags, CUstream stream) {
  if (fail != nullptr) *fail = ~std::size_t{0};
  if (count == 0 || operations == nullptr || flags != 0 || legacy_or_null(stream)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    CUDA_MEMCPY3D copy{};
    CUresult result = describe(operations[i], copy);
    if (result == CUDA_SUCCESS) result = box(&copy, stream, Waiting::kStream);
    if (result == CUDA_SUCCESS) continue;
    if (fail != nullptr) *fail = i;
    return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return flat(dst, End::kAny, src, End::kAny, ByteCount, nullptr, Waiting::kStaged);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return flat(dstDevice, End::kKnown, address_of(srcHost), End::kAny, ByteCount, nullptr,
              Waiting::kStaged);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return flat(address_of(dstHost), End::kAny, srcDevice, End::kKnown, ByteCount, nullptr,
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
  return flat(dstDevice, End::kKnown, address_of(srcHost), End::kAny, ByteCount, hStream,
              Waiting::kStream);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return flat(address_of(dstHost), End::kAny, srcDevice, End::kKnown, ByteCount, hStream,
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

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, nullptr, hStream);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  return batch_3d(numOps, opList, nullptr, flags, hStream);
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  return batch_3d(numOps, opList, failIdx, flags, hStream);
}

}  // namespace flyt::client::hooks
