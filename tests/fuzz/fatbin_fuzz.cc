// Fat binaries and other images of unknown origin: measured, taken apart, unpacked, reduced.
#include <cstddef>
#include <cstdint>

#include "cuda/fatbin.h"
#include "cuda/image.h"

using flyt::Bytes;
using flyt::bytes_at;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace cuda = flyt::cuda;
  // Unpacking more than this costs time, and shows nothing new.
  constexpr std::size_t kUnpackedMax = 1 << 20;
  constexpr cuda::ComputeCapability kHopper{9, 0};
  const Bytes bytes = bytes_at(data, size);
  const auto image = cuda::image_of(bytes);
  if (image) FLYT_ASSERT(image->bytes.size() <= size);
  const auto fatbin = cuda::Fatbin::parse(bytes);
  if (!fatbin) return 0;
  for (const cuda::FatbinFile& file : fatbin->files()) {
    if (file.unpacked_bytes > kUnpackedMax) continue;
    const auto unpacked = cuda::unpack(file);
    if (unpacked) FLYT_ASSERT(unpacked->size() == file.unpacked_bytes);
  }
  const auto reduced = cuda::reduced_fatbin(*fatbin, kHopper);
  FLYT_ASSERT(reduced.size() <= size);
  if (!reduced.empty()) FLYT_ASSERT(cuda::Fatbin::parse(reduced).ok());
  return 0;
}
