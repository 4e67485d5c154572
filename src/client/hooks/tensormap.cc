// Tensor maps: arithmetic of the server's driver, remembered by its arguments.
#include "client/hooks_tensormap.h"

#include <cstring>

#include "client/answer_cache.h"
#include "client/call.h"
#include "client/code/code_state.h"
#include "commands/tensormap.h"

namespace flyt::client::hooks {
namespace {

constexpr cuuint32_t kRankMax = 5;

template <class Command>
CUresult encode(const Command& command, CUtensorMap* out) {
  auto& cache = session().code().tensor_maps;
  std::string key = cache.key_of(command);
  TensorMapBytes map{};
  if (cache.find(key, map)) {
    std::memcpy(static_cast<void*>(out), map.data(), map.size());
    return CUDA_SUCCESS;
  }
  typename Command::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask(command, reply, answer);
  if (result != CUDA_SUCCESS) return result;
  if (reply.map.size() != map.size()) return CUDA_ERROR_UNKNOWN;
  std::memcpy(map.data(), reply.map.data(), map.size());
  std::memcpy(static_cast<void*>(out), map.data(), map.size());
  cache.add(std::move(key), map);
  return CUDA_SUCCESS;
}

// An array argument of `count` elements.
template <class T>
wire::List<T> list(const T* values, std::size_t count) {
  return wire::List<T>(std::span<const T>(values, count));
}
wire::List<std::uint64_t> list64(const cuuint64_t* values, std::size_t count) {
  return wire::List<std::uint64_t>::from_bytes(bytes_at(values, count * sizeof *values));
}

template <class T>
std::int32_t number(T value) {
  return static_cast<std::int32_t>(value);
}

// Arguments that all kinds share and that must be there, those of no elements, too.
bool complete(const CUtensorMap* map, cuuint32_t rank, const cuuint64_t* dimensions,
              const cuuint64_t* strides, const cuuint32_t* element_strides) {
  return map != nullptr && rank >= 1 && rank <= kRankMax && dimensions != nullptr &&
         strides != nullptr && element_strides != nullptr;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress,
                                const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill) {
  if (!complete(tensorMap, tensorRank, globalDim, globalStrides, elementStrides) ||
      boxDim == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return encode(commands::EncodeTensorMapTiled{.type = number(tensorDataType),
                                               .address = address_of(globalAddress),
                                               .dimensions = list64(globalDim, tensorRank),
                                               .strides = list64(globalStrides, tensorRank - 1),
                                               .box = list(boxDim, tensorRank),
                                               .element_strides = list(elementStrides, tensorRank),
                                               .interleave = number(interleave),
                                               .swizzle = number(swizzle),
                                               .promotion = number(l2Promotion),
                                               .fill = number(oobFill)},
                tensorMap);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void* globalAddress,
                                 const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                 const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill) {
  if (!complete(tensorMap, tensorRank, globalDim, globalStrides, elementStrides) ||
      tensorRank < 3 || pixelBoxLowerCorner == nullptr || pixelBoxUpperCorner == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return encode(commands::EncodeTensorMapIm2col{.type = number(tensorDataType),
                                                .address = address_of(globalAddress),
                                                .dimensions = list64(globalDim, tensorRank),
                                                .strides = list64(globalStrides, tensorRank - 1),
                                                .lower = list(pixelBoxLowerCorner, tensorRank - 2),
                                                .upper = list(pixelBoxUpperCorner, tensorRank - 2),
                                                .channels = channelsPerPixel,
                                                .pixels = pixelsPerColumn,
                                                .element_strides = list(elementStrides, tensorRank),
                                                .interleave = number(interleave),
                                                .swizzle = number(swizzle),
                                                .promotion = number(l2Promotion),
                                                .fill = number(oobFill)},
                tensorMap);
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  if (!complete(tensorMap, tensorRank, globalDim, globalStrides, elementStrides)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return encode(
      commands::EncodeTensorMapIm2colWide{.type = number(tensorDataType),
                                          .address = address_of(globalAddress),
                                          .dimensions = list64(globalDim, tensorRank),
                                          .strides = list64(globalStrides, tensorRank - 1),
                                          .lower = pixelBoxLowerCornerWidth,
                                          .upper = pixelBoxUpperCornerWidth,
                                          .channels = channelsPerPixel,
                                          .pixels = pixelsPerColumn,
                                          .element_strides = list(elementStrides, tensorRank),
                                          .interleave = number(interleave),
                                          .mode = number(mode),
                                          .swizzle = number(swizzle),
                                          .promotion = number(l2Promotion),
                                          .fill = number(oobFill)},
      tensorMap);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  if (tensorMap == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return encode(commands::ReplaceTensorMapAddress{.map = bytes_at(tensorMap, sizeof *tensorMap),
                                                  .address = address_of(globalAddress)},
                tensorMap);
}

}  // namespace flyt::client::hooks
