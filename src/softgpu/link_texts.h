// Link texts: the PTX in what a link is given, by itself or in files of other kinds, within limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/counted_bytes.h"
#include "cuda/fatbin.h"
#include "cuda/types.h"
#include "softgpu/ptx/jit_log.h"
#include "softgpu/ptx/module.h"

namespace flyt::softgpu {

// Limits of hostile input: PTX may be packed a thousandfold, and handed in again and again.
inline constexpr std::size_t kLinkTextsMax = 4096;  // Of one link, as the next.
// As much as one module has, which the link becomes.
inline constexpr std::uint64_t kLinkTextBytesMax = ptx::kSourceBytesMax;
// Of all links that a process has at a time.
inline constexpr std::uint64_t kLinksTextBytesMax = 1 * kGiB;

struct LinkText {
  std::string text;
  CountedBytes counted;  // Among those of all links.
};

// What a link may still take.
struct LinkRoom {
  std::size_t texts = kLinkTextsMax;
  std::uint64_t bytes = kLinkTextBytesMax;
  CountedBytes::Total all;
};

// Appends the texts in an input. Of a library files without PTX for the GPU are left out; otherwise
// that is CUDA_ERROR_NO_BINARY_FOR_GPU, as machine code and NVVM IR are. CUDA_ERROR_INVALID_IMAGE
// for damaged ones, CUDA_ERROR_OUT_OF_MEMORY beyond the limits, before anything is unpacked for
// that. Why is in the log.
CUresult texts_of_input(CUjitInputType type, Bytes bytes, cuda::ComputeCapability capability,
                        LinkRoom room, ptx::JitLog& log, std::vector<LinkText>& texts);

}  // namespace flyt::softgpu
