// Tensor maps: arithmetic of the driver on 128 bytes; addresses in them are only numbers here.
#include "server/hooks_tensormap.h"

#include <array>
#include <cstring>

namespace flyt::server::hooks {
namespace {

constexpr std::size_t kRankMax = 5;

// Room for lists of any length that the protocol allows, so that the driver never reads behind one.
template <class T, class U>
std::array<T, kRankMax> array_of(const wire::List<U>& list) {
  std::array<T, kRankMax> values{};
  for (std::size_t i = 0; i < list.size() && i < kRankMax; ++i) values[i] = list[i];
  return values;
}

template <class Command>
bool consistent(const Command& command) {
  const std::size_t rank = command.dimensions.size();
  return rank >= 1 && rank <= kRankMax && command.strides.size() == rank - 1 &&
         command.element_strides.size() == rank;
}

// Runs `encode(CUtensorMap*)` and answers with the map.
template <class Reply, class Encode>
void answer(Request request, bool valid, Encode&& encode) {
  Reply reply;
  CUtensorMap map{};
  const CUresult result = valid ? encode(&map) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) reply.map = bytes_at(&map, sizeof map);
  request.reply(result, reply);
}

}  // namespace

void encode_tensor_map_tiled(Request request, const commands::EncodeTensorMapTiled& c) {
  const driver::Table& driver = request.driver();
  const bool valid = consistent(c) && c.box.size() == c.dimensions.size();
  answer<commands::EncodeTensorMapTiled::Reply>(std::move(request), valid, [&](CUtensorMap* map) {
    const auto dimensions = array_of<cuuint64_t>(c.dimensions);
    const auto strides = array_of<cuuint64_t>(c.strides);
    const auto box = array_of<cuuint32_t>(c.box);
    const auto element_strides = array_of<cuuint32_t>(c.element_strides);
    return driver.cuTensorMapEncodeTiled(
        map, static_cast<CUtensorMapDataType>(c.type), static_cast<cuuint32_t>(c.dimensions.size()),
        pointer_at(c.address), dimensions.data(), strides.data(), box.data(),
        element_strides.data(), static_cast<CUtensorMapInterleave>(c.interleave),
        static_cast<CUtensorMapSwizzle>(c.swizzle),
        static_cast<CUtensorMapL2promotion>(c.promotion),
        static_cast<CUtensorMapFloatOOBfill>(c.fill));
  });
}

void encode_tensor_map_im2col(Request request, const commands::EncodeTensorMapIm2col& c) {
  const driver::Table& driver = request.driver();
  const std::size_t rank = c.dimensions.size();
  const bool valid =
      consistent(c) && rank >= 3 && c.lower.size() == rank - 2 && c.upper.size() == rank - 2;
  answer<commands::EncodeTensorMapIm2col::Reply>(std::move(request), valid, [&](CUtensorMap* map) {
    const auto dimensions = array_of<cuuint64_t>(c.dimensions);
    const auto strides = array_of<cuuint64_t>(c.strides);
    const auto lower = array_of<int>(c.lower);
    const auto upper = array_of<int>(c.upper);
    const auto element_strides = array_of<cuuint32_t>(c.element_strides);
    return driver.cuTensorMapEncodeIm2col(
        map, static_cast<CUtensorMapDataType>(c.type), static_cast<cuuint32_t>(rank),
        pointer_at(c.address), dimensions.data(), strides.data(), lower.data(), upper.data(),
        c.channels, c.pixels, element_strides.data(),
        static_cast<CUtensorMapInterleave>(c.interleave),
        static_cast<CUtensorMapSwizzle>(c.swizzle),
        static_cast<CUtensorMapL2promotion>(c.promotion),
        static_cast<CUtensorMapFloatOOBfill>(c.fill));
  });
}

void encode_tensor_map_im2col_wide(Request request, const commands::EncodeTensorMapIm2colWide& c) {
  const driver::Table& driver = request.driver();
  using Reply = commands::EncodeTensorMapIm2colWide::Reply;
  answer<Reply>(std::move(request), consistent(c), [&](CUtensorMap* map) {
    const auto dimensions = array_of<cuuint64_t>(c.dimensions);
    const auto strides = array_of<cuuint64_t>(c.strides);
    const auto element_strides = array_of<cuuint32_t>(c.element_strides);
    return driver.cuTensorMapEncodeIm2colWide(
        map, static_cast<CUtensorMapDataType>(c.type), static_cast<cuuint32_t>(c.dimensions.size()),
        pointer_at(c.address), dimensions.data(), strides.data(), c.lower, c.upper, c.channels,
        c.pixels, element_strides.data(), static_cast<CUtensorMapInterleave>(c.interleave),
        static_cast<CUtensorMapIm2ColWideMode>(c.mode), static_cast<CUtensorMapSwizzle>(c.swizzle),
        static_cast<CUtensorMapL2promotion>(c.promotion),
        static_cast<CUtensorMapFloatOOBfill>(c.fill));
  });
}

void replace_tensor_map_address(Request request, const commands::ReplaceTensorMapAddress& c) {
  const driver::Table& driver = request.driver();
  const bool valid = c.map.size() == sizeof(CUtensorMap);
  using Reply = commands::ReplaceTensorMapAddress::Reply;
  answer<Reply>(std::move(request), valid, [&](CUtensorMap* map) {
    std::memcpy(static_cast<void*>(map), c.map.data(), sizeof *map);
    return driver.cuTensorMapReplaceAddress(map, pointer_at(c.address));
  });
}

}  // namespace flyt::server::hooks
