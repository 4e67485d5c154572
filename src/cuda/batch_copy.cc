#include "cuda/batch_copy.h"

namespace flyt::cuda {
namespace {

constexpr unsigned int kFlagsMax = 1;  // To prefer that kernels run beside it.

struct BatchSide {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  CUdeviceptr address = 0;
  std::size_t pitch = 0;  // Rows and layers of 0 have no gaps.
  std::size_t height = 0;
  CUarray array = nullptr;
  CUoffset3D offset{};
};

bool take(const CUmemcpy3DOperand& given, BatchSide& out) {
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

bool is_null(const CUmemcpy3DOperand& operand) {
  return operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER && operand.op.ptr.ptr == 0;
}

bool good_order(CUmemcpySrcAccessOrder order) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

// A hint may say nothing.
bool good_hint(const CUmemLocation& location, int devices) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    return location.id >= 0 && location.id < devices;
  }
  return location.type >= CU_MEM_LOCATION_TYPE_INVALID &&
         location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

bool holds(const BatchSide& side, std::size_t rows) {
  return side.height == 0 || side.height >= rows;
}

}  // namespace

bool good_attributes(const CUmemcpyAttributes& attributes, int devices) {
  return good_order(attributes.srcAccessOrder) && good_hint(attributes.srcLocHint, devices) &&
         good_hint(attributes.dstLocHint, devices) && attributes.flags <= kFlagsMax;
}

bool names_nothing(const CUDA_MEMCPY3D_BATCH_OP& operation) {
  return is_null(operation.src) || is_null(operation.dst);
}

CUarray array_of(const CUmemcpy3DOperand& operand) {
  return operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? operand.op.array.array : nullptr;
}

CUresult describe_batch_copy(const CUDA_MEMCPY3D_BATCH_OP& operation, std::size_t element_bytes,
                             CUDA_MEMCPY3D& out) {
  BatchSide from;
  BatchSide to;
  const CUextent3D& extent = operation.extent;
  if (!take(operation.src, from) || !take(operation.dst, to) || extent.width == 0 ||
      extent.height == 0 || extent.depth == 0 || !holds(from, extent.height) ||
      !holds(to, extent.height) || !good_order(operation.srcAccessOrder) ||
      operation.flags > kFlagsMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out = {};
  out.srcMemoryType = from.type;
  out.dstMemoryType = to.type;
  out.srcDevice = from.address;
  out.dstDevice = to.address;
  out.srcArray = from.array;
  out.dstArray = to.array;
  out.srcHeight = from.height;
  out.dstHeight = to.height;
  out.srcY = from.offset.y;
  out.dstY = to.offset.y;
  out.srcZ = from.offset.z;
  out.dstZ = to.offset.z;
  out.Height = operation.extent.height;
  out.Depth = operation.extent.depth;
  const bool fits =
      !__builtin_mul_overflow(operation.extent.width, element_bytes, &out.WidthInBytes) &&
      !__builtin_mul_overflow(from.pitch, element_bytes, &out.srcPitch) &&
      !__builtin_mul_overflow(to.pitch, element_bytes, &out.dstPitch) &&
      !__builtin_mul_overflow(from.offset.x, element_bytes, &out.srcXInBytes) &&
      !__builtin_mul_overflow(to.offset.x, element_bytes, &out.dstXInBytes);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::cuda
