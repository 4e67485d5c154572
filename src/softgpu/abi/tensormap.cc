// Tensor maps: checked as CUDA documents it, and packed into a layout of our own that only the
// software GPU reads.
#include <array>
#include <cstring>

#include "softgpu/abi/enter.h"
#include "softgpu/interpreter/tensor_map.h"

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kDimensionMax = std::uint64_t{1} << 32;
constexpr std::uint64_t kStrideMax = std::uint64_t{1} << 40;
using ptx::kTensorBoxMax;
constexpr unsigned kElementStrideMax = 8;
using ptx::kTensorRankMax;
using Mode = ptx::TensorMap::Mode;
using Packed = ptx::TensorMap;
static_assert(sizeof(Packed) <= sizeof(CUtensorMap));

// Bytes of an element; 0 for a type that there is not.
unsigned element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
    case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
      return 1;
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
         tensor.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B &&
         tensor.promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
         tensor.fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA &&
         (tensor.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || floating) &&
         (tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_32B ||
          tensor.swizzle == CU_TENSOR_MAP_SWIZZLE_32B);
}

bool good_shape(const Tensor& tensor, unsigned rank_min) {
  if (tensor.rank < rank_min || tensor.rank > kTensorRankMax || tensor.dimensions == nullptr ||
      tensor.element_strides == nullptr || (tensor.rank > 1 && tensor.strides == nullptr)) {
    return false;
  }
  const bool wide = tensor.interleave == CU_TENSOR_MAP_INTERLEAVE_32B;
  if (tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE && tensor.rank < 3) return false;
  const std::uint64_t address = address_of(tensor.address);
  if (address == 0 || address % (wide ? 32 : 16) != 0) return false;
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

CUresult encode_tiled(CUtensorMap* map, const Tensor& tensor, const cuuint32_t* box) {
  if (map == nullptr || box == nullptr || !good_options(tensor) || !good_shape(tensor, 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Packed packed = pack(tensor, Mode::kTiled);
  for (unsigned i = 0; i < tensor.rank; ++i) {
    if (box[i] == 0 || box[i] > kTensorBoxMax) return CUDA_ERROR_INVALID_VALUE;
    packed.box[i] = static_cast<std::uint16_t>(box[i]);
  }
  const std::uint64_t inner = std::uint64_t{box[0]} * element_bytes(tensor.type);
  const unsigned swizzle = swizzle_bytes(tensor.swizzle);
  if (tensor.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
      (inner % 16 != 0 || (swizzle != 0 && inner > swizzle))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  store(map, packed);
  return CUDA_SUCCESS;
}

CUresult encode_im2col(CUtensorMap* map, const Tensor& tensor, const int* lower, const int* upper,
                       cuuint32_t channels, cuuint32_t pixels) {
  constexpr unsigned kChannelsMax = 256;
  constexpr unsigned kPixelsMax = 1024;
  if (map == nullptr || lower == nullptr || upper == nullptr || channels == 0 ||
      channels > kChannelsMax || pixels == 0 || pixels > kPixelsMax || !good_options(tensor) ||
      !good_shape(tensor, 3)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Packed packed = pack(tensor, Mode::kIm2col);
  const unsigned corners = tensor.rank - 2;
  const int least = corners == 1 ? -32768 : corners == 2 ? -128 : -16;
  for (unsigned i = 0; i < corners; ++i) {
    if (lower[i] < least || lower[i] > -least - 1 || upper[i] < least || upper[i] > -least - 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    packed.lower[i] = static_cast<std::int8_t>(lower[i]);
    packed.upper[i] = static_cast<std::int8_t>(upper[i]);
  }
  packed.channels = static_cast<std::uint16_t>(channels);
  packed.pixels = static_cast<std::uint16_t>(pixels);
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
  return with_driver([&](Driver&) {
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
  return with_driver([&](Driver&) {
    const Tensor tensor{tensorDataType, tensorRank, globalAddress, globalDim,   globalStrides,
                        elementStrides, interleave, swizzle,       l2Promotion, oobFill};
    return encode_im2col(tensorMap, tensor, pixelBoxLowerCorner, pixelBoxUpperCorner,
                         channelsPerPixel, pixelsPerColumn);
  });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  return with_driver([&](Driver&) -> CUresult {
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
