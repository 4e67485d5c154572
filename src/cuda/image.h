// Image: what a module-loading call points at, whose size the call does not tell.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace flyt::cuda {

// Limits of images that are not fat binaries.
inline constexpr std::size_t kPtxBytesMax = 256 * kMiB;
inline constexpr std::size_t kCubinBytesMax = 1 * kGiB;

enum class ImageKind : std::uint8_t { kFatbin, kCubin, kPtx };

struct Image {
  ImageKind kind = ImageKind::kPtx;
  // The image's own bytes: of a fat binary, its header and files. PTX: without the NUL.
  Bytes bytes;
  // Version 2 wrappers: the fat binaries that were linked into it, header and files each.
  std::vector<Bytes> linked;
};

// Finds out what stands at `data` and how long it is: a fat binary's wrapper or header, a cubin
// (ELF, measured by its tables), or PTX (up to its NUL). The caller of CUDA vouches for the
// pointer, as it does to any driver; the views live as long as the memory there.
Result<Image> image_at(const void* data);

// The same for bytes of known length, none of which is trusted. Wrappers are refused: they hold
// pointers.
Result<Image> image_of(Bytes bytes);

}  // namespace flyt::cuda
