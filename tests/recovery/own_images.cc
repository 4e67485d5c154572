#include "tests/recovery/own_images.h"

#include <utility>

#include "base/bytes.h"

namespace flyt::tests {
namespace {

constexpr const char* kPtx = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry fetch_row(.param .u64 image, .param .u64 out)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [image];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%rd1, {%r1}];
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r2;
  ret;
}
.visible .entry fetch(.param .u64 image, .param .u64 out)
{
  .reg .b32 %r<10>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [image];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  cvt.rn.f32.u32 %f0, %r1;
  add.f32 %f0, %f0, 0f3F000000;
  cvt.rn.f32.u32 %f1, %r2;
  add.f32 %f1, %f1, 0f3F000000;
  tex.2d.v4.u32.f32 {%r3, %r4, %r5, %r6}, [%rd1, {%f0, %f1}];
  mov.u32 %r7, %ntid.x;
  mad.lo.u32 %r8, %r2, %r7, %r1;
  mul.wide.u32 %rd3, %r8, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r3;
  ret;
}
.visible .entry bump(.param .u64 image, .param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [image];
  mov.u32 %r1, %tid.x;
  shl.b32 %r1, %r1, 2;
  mov.u32 %r2, %ctaid.x;
  suld.b.2d.b32.trap %r3, [%rd1, {%r1, %r2}];
  add.u32 %r3, %r3, 1;
  sust.b.2d.b32.trap [%rd1, {%r1, %r2}], %r3;
  ret;
}
)";

std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }

std::vector<std::uint32_t> counted(std::size_t words, std::uint32_t& seed) {
  std::vector<std::uint32_t> texels(words);
  for (std::uint32_t& texel : texels) texel = seed++ * 2654435761U;
  return texels;
}

CUDA_ARRAY3D_DESCRIPTOR described(std::size_t width, std::size_t height, std::size_t depth,
                                  unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = width;
  descriptor.Height = height;
  descriptor.Depth = depth;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  descriptor.NumChannels = 1;
  descriptor.Flags = flags;
  return descriptor;
}

}  // namespace

std::string OwnImages::answer(const std::string& what, std::size_t number) {
  if (what == "linear") return text(make_linear());
  if (what == "array") return text(make_array(0));
  if (what == "surface") return text(make_array(CUDA_ARRAY3D_SURFACE_LDST));
  if (what == "layers") return text(make_layers());
  if (what == "mipmapped") return text(make_mipmapped());
  if (what == "gap") return text(leave_gap(number));
  if (what == "large") return text(make_large(number));
  if (what == "large-end") return text(cu_.cuArrayDestroy(large_));
  if (what == "forget-memory") return text(forget_memory());
  if (what == "end") return text(end());
  return what == "use" ? use() : "unknown";
}

CUresult OwnImages::load() {
  return module_ != nullptr ? CUDA_SUCCESS : cu_.cuModuleLoadData(&module_, kPtx);
}

CUresult OwnImages::make_texture(const CUDA_RESOURCE_DESC& resource, CUtexObject& texture) const {
  CUDA_TEXTURE_DESC description{};
  description.flags = CU_TRSF_READ_AS_INTEGER;
  return cu_.cuTexObjectCreate(&texture, &resource, &description, nullptr);
}

CUresult OwnImages::make_linear() {
  Image image;
  image.texels = counted(kWidth, seed_);
  CUresult result = load();
  if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&linear_, kWidth * 4);
  if (result == CUDA_SUCCESS) {
    result = cu_.cuMemcpyHtoD_v2(linear_, image.texels.data(), kWidth * 4);
  }
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = linear_;
  resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = kWidth * 4;
  if (result == CUDA_SUCCESS) result = make_texture(resource, image.texture);
  images_.push_back(std::move(image));
  return result;
}

CUresult OwnImages::make_array(unsigned flags) {
  Image image;
  image.height = kHeight;
  image.texels = counted(std::size_t{kWidth} * kHeight, seed_);
  CUresult result = load();
  const auto descriptor = described(kWidth, kHeight, 0, flags);
  if (result == CUDA_SUCCESS) result = cu_.cuArray3DCreate_v2(&image.array, &descriptor);
  if (result == CUDA_SUCCESS) result = fill(image.array, kWidth, kHeight, 0, image.texels);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = image.array;
  if (result == CUDA_SUCCESS) result = make_texture(resource, image.texture);
  if (result == CUDA_SUCCESS && flags != 0) {
    result = cu_.cuSurfObjectCreate(&image.surface, &resource);
  }
  images_.push_back(std::move(image));
  return result;
}

CUresult OwnImages::make_layers() {
  const auto descriptor = described(kWidth, kHeight, 3, CUDA_ARRAY3D_LAYERED);
  CUresult result = cu_.cuArray3DCreate_v2(&layers_, &descriptor);
  for (unsigned layer = 0; layer < 3 && result == CUDA_SUCCESS; ++layer) {
    Image image;
    image.array = layers_;
    image.height = kHeight;
    image.slice = layer;
    image.texels = counted(std::size_t{kWidth} * kHeight, seed_);
    result = fill(layers_, kWidth, kHeight, layer, image.texels);
    images_.push_back(std::move(image));
  }
  return result;
}

CUresult OwnImages::make_mipmapped() {
  const auto descriptor = described(kWidth, kHeight, 0, 0);
  CUresult result = cu_.cuMipmappedArrayCreate(&mipmapped_, &descriptor, 3);
  // The first level stays without a handle, and holds anything.
  for (unsigned level = 1; level < 3 && result == CUDA_SUCCESS; ++level) {
    Image image;
    image.width = kWidth >> level;
    image.height = kHeight >> level;
    image.texels = counted(std::size_t{image.width} * image.height, seed_);
    result = cu_.cuMipmappedArrayGetLevel(&image.array, mipmapped_, level);
    if (result == CUDA_SUCCESS) {
      result = fill(image.array, image.width, image.height, 0, image.texels);
    }
    images_.push_back(std::move(image));
  }
  return result;
}

CUresult OwnImages::leave_gap(std::size_t count) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = linear_;
  resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = kWidth * 4;
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    CUtexObject texture = 0;
    result = make_texture(resource, texture);
    if (result == CUDA_SUCCESS) result = cu_.cuTexObjectDestroy(texture);
  }
  return result;
}

CUresult OwnImages::make_large(std::size_t bytes) {
  constexpr std::size_t kRow = 16 * kKiB;
  const auto descriptor = described(kRow / 4, bytes / kRow, 0, 0);
  return cu_.cuArray3DCreate_v2(&large_, &descriptor);
}

// What was made of it stays, and must not be used.
CUresult OwnImages::forget_memory() {
  std::erase_if(images_, [](const Image& image) { return image.array == nullptr; });
  return cu_.cuMemFree_v2(linear_);
}

CUresult OwnImages::end() {
  CUresult result = CUDA_SUCCESS;
  const auto must = [&](CUresult ended) {
    if (result == CUDA_SUCCESS) result = ended;
  };
  for (const Image& image : images_) {
    if (image.texture != 0) must(cu_.cuTexObjectDestroy(image.texture));
    if (image.surface != 0) must(cu_.cuSurfObjectDestroy(image.surface));
    if (image.texture != 0 && image.array != nullptr) must(cu_.cuArrayDestroy(image.array));
  }
  if (layers_ != nullptr) must(cu_.cuArrayDestroy(layers_));
  if (mipmapped_ != nullptr) must(cu_.cuMipmappedArrayDestroy(mipmapped_));
  layers_ = nullptr;
  mipmapped_ = nullptr;
  images_.clear();
  return result;
}

CUresult OwnImages::fill(CUarray array, unsigned width, unsigned height, unsigned slice,
                         const std::vector<std::uint32_t>& texels) const {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = texels.data();
  copy.srcPitch = width * 4;
  copy.srcHeight = height;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.dstZ = slice;
  copy.WidthInBytes = width * 4;
  copy.Height = height;
  copy.Depth = 1;
  return cu_.cuMemcpy3D_v2(&copy);
}

CUresult OwnImages::read(CUarray array, unsigned width, unsigned height, unsigned slice,
                         std::vector<std::uint32_t>& texels) const {
  texels.resize(std::size_t{width} * height);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.srcZ = slice;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = texels.data();
  copy.dstPitch = width * 4;
  copy.dstHeight = height;
  copy.WidthInBytes = width * 4;
  copy.Height = height;
  copy.Depth = 1;
  return cu_.cuMemcpy3D_v2(&copy);
}

CUresult OwnImages::fetch(const char* kernel, CUtexObject texture, unsigned height,
                          std::vector<std::uint32_t>& found) const {
  found.assign(std::size_t{kWidth} * height, 0);
  CUfunction function = nullptr;
  CUdeviceptr out = 0;
  CUresult result = cu_.cuModuleGetFunction(&function, module_, kernel);
  if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&out, found.size() * 4);
  void* parameters[] = {&texture, &out};
  if (result == CUDA_SUCCESS) {
    result =
        cu_.cuLaunchKernel(function, height, 1, 1, kWidth, 1, 1, 0, nullptr, parameters, nullptr);
  }
  if (result == CUDA_SUCCESS) result = cu_.cuMemcpyDtoH_v2(found.data(), out, found.size() * 4);
  cu_.cuMemFree_v2(out);
  return result;
}

std::string OwnImages::use() {
  std::vector<std::uint32_t> found;
  for (Image& image : images_) {
    if (image.array != nullptr) {
      const CUresult result = read(image.array, image.width, image.height, image.slice, found);
      if (result != CUDA_SUCCESS) return "reading an array " + text(result);
      if (found != image.texels) return "an array changed";
    }
    if (image.texture != 0) {
      const char* const kernel = image.array == nullptr ? "fetch_row" : "fetch";
      const CUresult result = fetch(kernel, image.texture, image.height, found);
      if (result != CUDA_SUCCESS) return "fetching " + text(result);
      if (found != image.texels) return "a texture changed";
    }
    if (image.surface == 0) continue;
    const CUresult result = fetch("bump", image.surface, image.height, found);
    if (result != CUDA_SUCCESS) return "a surface " + text(result);
    for (std::uint32_t& texel : image.texels) ++texel;
  }
  return "ok";
}

}  // namespace flyt::tests
