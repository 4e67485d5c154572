// What the calls of before CUDA 3.2 need, whose device addresses and sizes have 32 bits.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/types.h"

namespace flyt::cuda {

template <class Wide>
constexpr bool fits_narrow(Wide value) {
  return value <= std::numeric_limits<std::uint32_t>::max();
}

// Tells a value of a successor's answer; `too_big` where 32 bits do not hold it. A null `out` wants
// nothing.
template <class Wide>
CUresult tell_narrow(Wide value, unsigned int* out, CUresult too_big = CUDA_ERROR_INVALID_VALUE) {
  if (out == nullptr) return CUDA_SUCCESS;
  if (!fits_narrow(value)) return too_big;
  *out = static_cast<unsigned int>(value);
  return CUDA_SUCCESS;
}

namespace detail {

// What both descriptions have in common, field by field.
template <class Narrow, class Wide>
void widen_both(const Narrow& from, Wide& to) {
  to.srcXInBytes = from.srcXInBytes;
  to.srcY = from.srcY;
  to.srcMemoryType = from.srcMemoryType;
  to.srcHost = from.srcHost;
  to.srcDevice = from.srcDevice;
  to.srcArray = from.srcArray;
  to.srcPitch = from.srcPitch;
  to.dstXInBytes = from.dstXInBytes;
  to.dstY = from.dstY;
  to.dstMemoryType = from.dstMemoryType;
  to.dstHost = from.dstHost;
  to.dstDevice = from.dstDevice;
  to.dstArray = from.dstArray;
  to.dstPitch = from.dstPitch;
  to.WidthInBytes = from.WidthInBytes;
  to.Height = from.Height;
}

}  // namespace detail

inline CUDA_MEMCPY2D widen(const CUDA_MEMCPY2D_v1& from) {
  CUDA_MEMCPY2D to{};
  detail::widen_both(from, to);
  return to;
}

inline CUDA_MEMCPY3D widen(const CUDA_MEMCPY3D_v1& from) {
  CUDA_MEMCPY3D to{};
  detail::widen_both(from, to);
  to.srcZ = from.srcZ;
  to.srcLOD = from.srcLOD;
  to.reserved0 = from.reserved0;
  to.srcHeight = from.srcHeight;
  to.dstZ = from.dstZ;
  to.dstLOD = from.dstLOD;
  to.reserved1 = from.reserved1;
  to.dstHeight = from.dstHeight;
  to.Depth = from.Depth;
  return to;
}

inline CUDA_ARRAY_DESCRIPTOR widen(const CUDA_ARRAY_DESCRIPTOR_v1& from) {
  CUDA_ARRAY_DESCRIPTOR to{};
  to.Width = from.Width;
  to.Height = from.Height;
  to.Format = from.Format;
  to.NumChannels = from.NumChannels;
  return to;
}

inline CUDA_ARRAY3D_DESCRIPTOR widen(const CUDA_ARRAY3D_DESCRIPTOR_v1& from) {
  CUDA_ARRAY3D_DESCRIPTOR to{};
  to.Width = from.Width;
  to.Height = from.Height;
  to.Depth = from.Depth;
  to.Format = from.Format;
  to.NumChannels = from.NumChannels;
  to.Flags = from.Flags;
  return to;
}

// No array is so large that 32 bits do not hold its extents.
inline CUDA_ARRAY_DESCRIPTOR_v1 narrowed(const CUDA_ARRAY_DESCRIPTOR& from) {
  CUDA_ARRAY_DESCRIPTOR_v1 to{};
  to.Width = static_cast<unsigned int>(from.Width);
  to.Height = static_cast<unsigned int>(from.Height);
  to.Format = from.Format;
  to.NumChannels = from.NumChannels;
  return to;
}

inline CUDA_ARRAY3D_DESCRIPTOR_v1 narrowed(const CUDA_ARRAY3D_DESCRIPTOR& from) {
  CUDA_ARRAY3D_DESCRIPTOR_v1 to{};
  to.Width = static_cast<unsigned int>(from.Width);
  to.Height = static_cast<unsigned int>(from.Height);
  to.Depth = static_cast<unsigned int>(from.Depth);
  to.Format = from.Format;
  to.NumChannels = from.NumChannels;
  to.Flags = from.Flags;
  return to;
}

// `call` with the wide form of a description that may be null.
template <class Narrow, class Call>
CUresult with_wide(const Narrow* narrow, Call&& call) {
  if (narrow == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = widen(*narrow);
  return call(&wide);
}

}  // namespace flyt::cuda
