// Tensor maps: checked as CUDA documents it, and packed into a layout of our own that only the
// software GPU reads.
#include <array>
#include <cstring>

#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kRankMax = 5;
constexpr std::uint64_t kDimensionMax = std::uint64_t{1} << 32;
constexpr std::uint64_t kStrideMax = std::uint64_t{1} << 40;
constexpr unsigned kBoxMax = 256;
constexpr unsigned kElementStrideMax = 8;
constexpr std::uint32_t kMagic = 0x504D5446;  // "FTMP"

enum class Mode : std::uint8_t { kTiled, kIm2col, kIm2colWide };

// The 128 bytes of a CUtensorMap.
struct Packed {
  std::uint32_t magic = kMagic;
  Mode mode = Mode::kTiled;
  std::uint8_t type = 0;
  std::uint8_t rank = 0;
  std::uint8_t interleave = 0;
  std::uint64_t address = 0;
  std::array<std::uint32_t, kRankMax> dimensions{};  // Less one.
  std::uint8_t swizzle = 0;
  std::uint8_t promotion = 0;
  std::uint8_t fill = 0;
  std::uint8_t wide_mode = 0;
  std::array<std::uint64_t, kRankMax - 1> strides{};  // Bytes.
  std::array<std::uint16_t, kRankMax> box{};          // Tiled.
  std::array<std::uint8_t, kRankMax> element_strides{};
  std::array<std::int8_t, 3> lower{};  // Im2col.
  std::array<std::int8_t, 3> upper{};
  std::uint8_t reserved = 0;
  std::uint16_t channels = 0;
  std::uint16_t pixels = 0;
  std::array<std::uint32_t, 6> padding{};
};
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
  if (tensor.rank < rank_min || tensor.rank > kRankMax || tensor.dimensions == nullptr ||
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
    if (box[i] == 0 || box[i] > kBoxMax) return CUDA_ERROR_INVALID_VALUE;
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
    if (packed.magic != kMagic || address == 0 || address % 16 != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    packed.address = address;
    store(tensorMap, packed);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
