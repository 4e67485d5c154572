// Tensor maps: checked as CUDA documents it, and packed into a layout of our own that only the
// software GPU reads.
#include <array>
#include <cstring>

#include "softgpu/abi/enter.h"
#include "softgpu/interpreter/tensor_map.h"
#include "softgpu/ptx/module.h"

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kDimensionMax = std::uint64_t{1} << 32;
constexpr std::uint64_t kStrideMax = std::uint64_t{1} << 40;
constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 57;
constexpr unsigned kBoxAlignment = 16;  // Of the bytes of its rows.
using ptx::kTensorBoxMax;
constexpr unsigned kElementStrideMax = 8;
using ptx::kTensorRankMax;
using Mode = ptx::TensorMap::Mode;
using Packed = ptx::TensorMap;
static_assert(sizeof(Packed) <= sizeof(CUtensorMap));

// Bytes of an element; 0 for a type that there is not, or on later GPUs only.
unsigned element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
    case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
      break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
  }
  return 0;
}

unsigned swizzle_bytes(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    case CU_TENSOR_MAP_SWIZZLE_128B:
    case CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B:
    case CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B:
    case CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B:
      return 128;
  }
  return 0;
}

// What all three ways of encoding have in common.
struct Tensor {
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t* dimensions;
  const cuuint64_t* strides;
  const cuuint32_t* element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

bool good_options(const Tensor& tensor) {
  const bool floating = tensor.type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 &&
                        tensor.type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
  return element_bytes(tensor.type) != 0 && tensor.interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
         tensor.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B &&  // Later GPUs have more.
         tensor.promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
         tensor.fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA &&
         (tensor.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || floating);
}

bool good_shape(const Tensor& tensor, unsigned rank_min) {
  if (tensor.rank < rank_min || tensor.rank > kTensorRankMax || tensor.dimensions == nullptr ||
      tensor.element_strides == nullptr || tensor.strides == nullptr) {
    return false;
  }
  const bool wide = tensor.interleave == CU_TENSOR_MAP_INTERLEAVE_32B;
  if (tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE && tensor.rank < 3) return false;
  const std::uint64_t address = address_of(tensor.address);
  if (address >= kAddressEnd || address % (wide ? 32 : 16) != 0) return false;
  for (unsigned i = 0; i < tensor.rank; ++i) {
    if (tensor.dimensions[i] == 0 || tensor.dimensions[i] > kDimensionMax) return false;
    if (tensor.element_strides[i] == 0 || tensor.element_strides[i] > kElementStrideMax) {
      return false;
    }
    if (i + 1 == tensor.rank) break;
    const std::uint64_t stride = tensor.strides[i];
    if (stride % (wide ? 32 : 16) != 0 || stride >= kStrideMax) return false;
  }
  return true;
}

Packed pack(const Tensor& tensor, Mode mode) {
  Packed packed;
  packed.mode = mode;
  packed.type = static_cast<std::uint8_t>(tensor.type);
  packed.rank = static_cast<std::uint8_t>(tensor.rank);
  packed.interleave = static_cast<std::uint8_t>(tensor.interleave);
  packed.address = address_of(tensor.address);
  packed.swizzle = static_cast<std::uint8_t>(tensor.swizzle);
  packed.promotion = static_cast<std::uint8_t>(tensor.promotion);
  packed.fill = static_cast<std::uint8_t>(tensor.fill);
  for (unsigned i = 0; i < tensor.rank; ++i) {
    packed.dimensions[i] = static_cast<std::uint32_t>(tensor.dimensions[i] - 1);
    packed.element_strides[i] = static_cast<std::uint8_t>(tensor.element_strides[i]);
    if (i + 1 < tensor.rank) packed.strides[i] = tensor.strides[i];
  }
  return packed;
}

void store(CUtensorMap* map, const Packed& packed) {
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &packed, sizeof packed);
}

// Whether a box may have rows of so many elements.
bool good_rows(const Tensor& tensor, std::uint64_t elements) {
  const std::uint64_t bytes = elements * element_bytes(tensor.type);
  if (bytes % kBoxAlignment != 0) return false;
  const unsigned swizzle = swizzle_bytes(tensor.swizzle);
  return tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle == 0 || bytes <= swizzle;
}

CUresult encode_tiled(CUtensorMap* map, const Tensor& tensor, const cuuint32_t* box) {
  if (map == nullptr || box == nullptr || !good_options(tensor) || !good_shape(tensor, 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Packed packed = pack(tensor, Mode::kTiled);
  std::uint64_t bytes = element_bytes(tensor.type);
  for (unsigned i = 0; i < tensor.rank; ++i) {
    if (box[i] == 0 || box[i] > kTensorBoxMax) return CUDA_ERROR_INVALID_VALUE;
    packed.box[i] = static_cast<std::uint16_t>(box[i]);
    bytes *= i == 0 ? box[i] : (box[i] - 1) / tensor.element_strides[i] + 1;
  }
  // No shared memory has room for more.
  if (!good_rows(tensor, box[0]) || bytes > ptx::kSharedBytesMax) return CUDA_ERROR_INVALID_VALUE;
  store(map, packed);
  return CUDA_SUCCESS;
}

// The pixels from which boxes may begin: at least one of each direction, within what a map can
// tell.
bool good_corners(const Tensor& tensor, const int* lower, const int* upper, unsigned count) {
  constexpr std::uint64_t kLengthMax = 0x7fffffff;
  const int least = count == 1 ? -32768 : count == 2 ? -128 : -16;
  for (unsigned i = 0; i < count; ++i) {
    const std::uint64_t length = tensor.dimensions[i + 1];
    if (lower[i] < least || lower[i] > -least - 1 || upper[i] < least || upper[i] > -least - 1 ||
        length > kLengthMax) {
      return false;
    }
    if (static_cast<std::int64_t>(length) + upper[i] - lower[i] <= 0) return false;
  }
  return true;
}

bool good_column(const Tensor& tensor, cuuint32_t channels, cuuint32_t pixels) {
  constexpr unsigned kChannelsMax = 256;
  constexpr unsigned kPixelsMax = 1024;
  return channels != 0 && channels <= kChannelsMax && pixels != 0 && pixels <= kPixelsMax &&
         good_options(tensor) && good_shape(tensor, 3) && good_rows(tensor, channels);
}

CUresult encode_im2col(CUtensorMap* map, const Tensor& tensor, const int* lower, const int* upper,
                       cuuint32_t channels, cuuint32_t pixels) {
  if (map == nullptr || lower == nullptr || upper == nullptr ||
      !good_column(tensor, channels, pixels) ||
      !good_corners(tensor, lower, upper, tensor.rank - 2)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Packed packed = pack(tensor, Mode::kIm2col);
  for (unsigned i = 0; i < tensor.rank - 2; ++i) {
    packed.lower[i] = static_cast<std::int16_t>(lower[i]);
    packed.upper[i] = static_cast<std::int16_t>(upper[i]);
  }
  packed.channels = static_cast<std::uint16_t>(channels);
  packed.pixels = static_cast<std::uint16_t>(pixels);
  store(map, packed);
  return CUDA_SUCCESS;
}

// One pair of corners, with a byte each.
CUresult encode_im2col_wide(CUtensorMap* map, const Tensor& tensor, int lower, int upper,
                            cuuint32_t channels, cuuint32_t pixels,
                            CUtensorMapIm2ColWideMode mode) {
  constexpr int kLeast = -128;
  if (map == nullptr || mode > CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128 || lower < kLeast ||
      lower >= -kLeast || upper < kLeast || upper >= -kLeast ||
      !good_column(tensor, channels, pixels) || !good_corners(tensor, &lower, &upper, 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Packed packed = pack(tensor, Mode::kIm2colWide);
  packed.lower[0] = static_cast<std::int16_t>(lower);
  packed.upper[0] = static_cast<std::int16_t>(upper);
  packed.channels = static_cast<std::uint16_t>(channels);
  packed.pixels = static_cast<std::uint16_t>(pixels);
  packed.wide_mode = static_cast<std::uint8_t>(mode);
  store(map, packed);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress,
                                const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill) {
  return with_context([&](Driver&, Context&) -> CUresult {
    const Tensor tensor{tensorDataType, tensorRank, globalAddress, globalDim,   globalStrides,
                        elementStrides, interleave, swizzle,       l2Promotion, oobFill};
    return encode_tiled(tensorMap, tensor, boxDim);
  });
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void* globalAddress,
                                 const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                 const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill) {
  return with_context([&](Driver&, Context&) -> CUresult {
    const Tensor tensor{tensorDataType, tensorRank, globalAddress, globalDim,   globalStrides,
                        elementStrides, interleave, swizzle,       l2Promotion, oobFill};
    return encode_im2col(tensorMap, tensor, pixelBoxLowerCorner, pixelBoxUpperCorner,
                         channelsPerPixel, pixelsPerColumn);
  });
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  return with_context([&](Driver&, Context&) -> CUresult {
    const Tensor tensor{tensorDataType, tensorRank, globalAddress, globalDim,   globalStrides,
                        elementStrides, interleave, swizzle,       l2Promotion, oobFill};
    return encode_im2col_wide(tensorMap, tensor, pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth,
                              channelsPerPixel, pixelsPerColumn, mode);
  });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  return with_context([&](Driver&, Context&) -> CUresult {
    if (tensorMap == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Packed packed;
    std::memcpy(static_cast<void*>(&packed), tensorMap, sizeof packed);
    const std::uint64_t address = address_of(globalAddress);
    if (packed.magic != Packed::kMagic || address == 0 || address % 16 != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    packed.address = address;
    store(tensorMap, packed);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
