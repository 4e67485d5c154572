#include "tests/conformance/images.h"

namespace flyt::conformance {
namespace {

void expect_ok(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) ADD_FAILURE() << what << ": " << name_of(result);
}

}  // namespace

Array::Array(std::size_t width, std::size_t height, std::size_t depth, CUarray_format format,
             unsigned channels, unsigned flags) {
  const Unrecorded quiet;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor{width, height, depth, format, channels, flags};
  expect_ok(cu().cuArray3DCreate_v2(&array_, &descriptor), "cuArray3DCreate");
}

Array::~Array() {
  const Unrecorded quiet;
  cu().cuArrayDestroy(array_);
}

MipmappedArray::MipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels) {
  const Unrecorded quiet;
  expect_ok(cu().cuMipmappedArrayCreate(&array_, &descriptor, levels), "cuMipmappedArrayCreate");
}

MipmappedArray::~MipmappedArray() {
  const Unrecorded quiet;
  cu().cuMipmappedArrayDestroy(array_);
}

CUarray MipmappedArray::level(unsigned level) const {
  const Unrecorded quiet;
  CUarray array = nullptr;
  expect_ok(cu().cuMipmappedArrayGetLevel(&array, array_, level), "cuMipmappedArrayGetLevel");
  return array;
}

void write_array(CUarray array, const void* from, std::size_t row_bytes, std::size_t rows,
                 std::size_t slices) {
  const Unrecorded quiet;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  copy.srcPitch = row_bytes;
  copy.srcHeight = rows;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = row_bytes;
  copy.Height = rows;
  copy.Depth = slices;
  expect_ok(cu().cuMemcpy3D_v2(&copy), "cuMemcpy3D");
  expect_ok(cu().cuStreamSynchronize(CU_STREAM_LEGACY), "cuStreamSynchronize");
}

void read_array(CUarray array, void* to, std::size_t row_bytes, std::size_t rows,
                std::size_t slices) {
  const Unrecorded quiet;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.dstPitch = row_bytes;
  copy.dstHeight = rows;
  copy.WidthInBytes = row_bytes;
  copy.Height = rows;
  copy.Depth = slices;
  expect_ok(cu().cuMemcpy3D_v2(&copy), "cuMemcpy3D");
}

}  // namespace flyt::conformance
