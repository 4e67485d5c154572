// The calls of before CUDA 3.2: an address or a size of 32 bits is right, or there is none.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

// What only these tests call.
struct NarrowCalls {
  Call<decltype(driver::Table::cuArray3DCreate)> cuArray3DCreate{"cuArray3DCreate"};
  Call<decltype(driver::Table::cuArray3DGetDescriptor)> cuArray3DGetDescriptor{
      "cuArray3DGetDescriptor"};
  Call<decltype(driver::Table::cuArrayCreate)> cuArrayCreate{"cuArrayCreate"};
  Call<decltype(driver::Table::cuArrayGetDescriptor)> cuArrayGetDescriptor{"cuArrayGetDescriptor"};
  Call<decltype(driver::Table::cuMemcpyAtoA)> cuMemcpyAtoA{"cuMemcpyAtoA"};
  Call<decltype(driver::Table::cuMemcpyAtoD)> cuMemcpyAtoD{"cuMemcpyAtoD"};
  Call<decltype(driver::Table::cuMemcpyAtoH)> cuMemcpyAtoH{"cuMemcpyAtoH"};
  Call<decltype(driver::Table::cuMemcpyAtoHAsync)> cuMemcpyAtoHAsync{"cuMemcpyAtoHAsync"};
  Call<decltype(driver::Table::cuMemcpyDtoA)> cuMemcpyDtoA{"cuMemcpyDtoA"};
  Call<decltype(driver::Table::cuMemcpyHtoA)> cuMemcpyHtoA{"cuMemcpyHtoA"};
  Call<decltype(driver::Table::cuMemcpyHtoAAsync)> cuMemcpyHtoAAsync{"cuMemcpyHtoAAsync"};
  Call<decltype(driver::Table::cuTexRefCreate)> cuTexRefCreate{"cuTexRefCreate"};
  Call<decltype(driver::Table::cuTexRefDestroy)> cuTexRefDestroy{"cuTexRefDestroy"};
  Call<decltype(driver::Table::cuTexRefGetAddress)> cuTexRefGetAddress{"cuTexRefGetAddress"};
  Call<decltype(driver::Table::cuTexRefSetAddress)> cuTexRefSetAddress{"cuTexRefSetAddress"};
  Call<decltype(driver::Table::cuTexRefSetAddress2D)> cuTexRefSetAddress2D{"cuTexRefSetAddress2D"};
  Call<decltype(driver::Table::cuDeviceTotalMem)> cuDeviceTotalMem{"cuDeviceTotalMem"};
  Call<decltype(driver::Table::cuMemAlloc)> cuMemAlloc{"cuMemAlloc"};
  Call<decltype(driver::Table::cuMemAllocHost)> cuMemAllocHost{"cuMemAllocHost"};
  Call<decltype(driver::Table::cuMemAllocPitch)> cuMemAllocPitch{"cuMemAllocPitch"};
  Call<decltype(driver::Table::cuMemFree)> cuMemFree{"cuMemFree"};
  Call<decltype(driver::Table::cuMemGetInfo)> cuMemGetInfo{"cuMemGetInfo"};
  Call<decltype(driver::Table::cuMemcpy2D)> cuMemcpy2D{"cuMemcpy2D"};
  Call<decltype(driver::Table::cuMemcpy2DAsync)> cuMemcpy2DAsync{"cuMemcpy2DAsync"};
  Call<decltype(driver::Table::cuMemcpy2DUnaligned)> cuMemcpy2DUnaligned{"cuMemcpy2DUnaligned"};
  Call<decltype(driver::Table::cuMemcpy3D)> cuMemcpy3D{"cuMemcpy3D"};
  Call<decltype(driver::Table::cuMemcpy3DAsync)> cuMemcpy3DAsync{"cuMemcpy3DAsync"};
  Call<decltype(driver::Table::cuMemcpyDtoH)> cuMemcpyDtoH{"cuMemcpyDtoH"};
  Call<decltype(driver::Table::cuMemcpyHtoD)> cuMemcpyHtoD{"cuMemcpyHtoD"};
  Call<decltype(driver::Table::cuMemsetD2D8)> cuMemsetD2D8{"cuMemsetD2D8"};
  Call<decltype(driver::Table::cuMemsetD32)> cuMemsetD32{"cuMemsetD32"};
  Call<decltype(driver::Table::cuMemsetD8)> cuMemsetD8{"cuMemsetD8"};

  NarrowCalls() {
    bind(cuArray3DCreate);
    bind(cuArray3DGetDescriptor);
    bind(cuArrayCreate);
    bind(cuArrayGetDescriptor);
    bind(cuMemcpyAtoA);
    bind(cuMemcpyAtoD);
    bind(cuMemcpyAtoH);
    bind(cuMemcpyAtoHAsync);
    bind(cuMemcpyDtoA);
    bind(cuMemcpyHtoA);
    bind(cuMemcpyHtoAAsync);
    bind(cuTexRefCreate);
    bind(cuTexRefDestroy);
    bind(cuTexRefGetAddress);
    bind(cuTexRefSetAddress);
    bind(cuTexRefSetAddress2D);
    bind(cuDeviceTotalMem);
    bind(cuMemAlloc);
    bind(cuMemAllocHost);
    bind(cuMemAllocPitch);
    bind(cuMemFree);
    bind(cuMemGetInfo);
    bind(cuMemcpy2D);
    bind(cuMemcpy2DAsync);
    bind(cuMemcpy2DUnaligned);
    bind(cuMemcpy3D);
    bind(cuMemcpy3DAsync);
    bind(cuMemcpyDtoH);
    bind(cuMemcpyHtoD);
    bind(cuMemsetD2D8);
    bind(cuMemsetD32);
    bind(cuMemsetD8);
  }
  template <class One>
  static void bind(One& call) {
    call.bind(::dlsym(cu().library, call.name()));
  }
};

const NarrowCalls& narrow_calls() {
  static const NarrowCalls calls;
  return calls;
}

using NarrowTest = ContextTest;

constexpr std::uint64_t kNarrowMax = std::numeric_limits<unsigned int>::max();

TEST_F(NarrowTest, AnAllocationIsUsableOrRefused) {
  constexpr unsigned int kBytes = 4096;
  CUdeviceptr_v1 memory = 0;
  const CUresult result = narrow_calls().cuMemAlloc(&memory, kBytes);
  if (result != CUDA_SUCCESS) {
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, result);
    return;
  }
  std::vector<std::uint32_t> in(kBytes / 4);
  std::vector<std::uint32_t> out(kBytes / 4);
  std::iota(in.begin(), in.end(), 1u);
  CU_OK(narrow_calls().cuMemsetD32(memory, 9, kBytes / 4));
  CU_OK(narrow_calls().cuMemcpyHtoD(memory, in.data(), kBytes / 2));
  CU_OK(narrow_calls().cuMemcpyDtoH(out.data(), memory, kBytes));
  EXPECT_EQ(0, std::memcmp(in.data(), out.data(), kBytes / 2));
  EXPECT_EQ(9u, out.back());
  CU_OK(narrow_calls().cuMemFree(memory));
}

TEST_F(NarrowTest, APitchedAllocationIsUsableOrRefused) {
  CUdeviceptr_v1 memory = 0;
  unsigned int pitch = 0;
  const CUresult result = narrow_calls().cuMemAllocPitch(&memory, &pitch, 100, 10, 4);
  if (result != CUDA_SUCCESS) {
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, result);
    return;
  }
  EXPECT_GE(pitch, 100u);
  CU_OK(narrow_calls().cuMemsetD2D8(memory, pitch, 1, 100, 10));
  CU_OK(narrow_calls().cuMemFree(memory));
}

TEST_F(NarrowTest, NothingIsLostWhenAnAllocationIsRefused) {
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  CUdeviceptr_v1 memory = 0;
  CU_OK(cu().cuCtxSynchronize());
  CU_OK(cu().cuMemGetInfo_v2(&before, &total));
  for (int i = 0; i < 20; ++i) {
    if (narrow_calls().cuMemAlloc(&memory, 8u << 20) == CUDA_SUCCESS) {
      CU_OK(narrow_calls().cuMemFree(memory));
    }
  }
  const Unrecorded quiet;
  EXPECT_TRUE(eventually([&] {
    cu().cuCtxSynchronize();
    return cu().cuMemGetInfo_v2(&after, &total) == CUDA_SUCCESS && after >= before;
  }));
}

TEST_F(NarrowTest, OfADevicesMemoryIsToldWhatCanBe) {
  std::size_t wide = 0;
  unsigned int narrow = 0;
  CU_OK(cu().cuDeviceTotalMem_v2(&wide, device));
  CU_OK(narrow_calls().cuDeviceTotalMem(&narrow, device));
  EXPECT_EQ(std::min<std::size_t>(wide, ~0U), narrow);
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuDeviceTotalMem(nullptr, device));
  unsigned int free = 0;
  unsigned int total = 0;
  if (narrow_calls().cuMemGetInfo(&free, &total) == CUDA_SUCCESS) {
    EXPECT_LE(free, total);
  }
}

TEST_F(NarrowTest, CopiesBetweenHostRowsWork) {
  std::vector<std::uint8_t> in(64 * 8);
  std::vector<std::uint8_t> out(32 * 8);
  std::iota(in.begin(), in.end(), std::uint8_t{0});
  CUDA_MEMCPY2D_v1 copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = 64;
  copy.srcXInBytes = 5;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = out.data();
  copy.dstPitch = 32;
  copy.WidthInBytes = 20;
  copy.Height = 6;
  CU_OK(narrow_calls().cuMemcpy2D(&copy));
  CU_OK(cu().cuCtxSynchronize());
  for (unsigned row = 0; row < 6; ++row) {
    EXPECT_EQ(0, std::memcmp(&out[row * 32], &in[(row + 1) * 64 + 5], 20)) << row;
  }
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  CU_OK(narrow_calls().cuMemcpy2DUnaligned(&copy));
  CU_OK(narrow_calls().cuMemcpy2DAsync(&copy, nullptr));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(0, std::memcmp(out.data(), &in[64 + 5], 20));
}

TEST_F(NarrowTest, CopiesBetweenHostBoxesWork) {
  std::vector<std::uint8_t> in(16 * 4 * 3);
  std::vector<std::uint8_t> out(in.size());
  std::iota(in.begin(), in.end(), std::uint8_t{0});
  CUDA_MEMCPY3D_v1 copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = 16;
  copy.srcHeight = 4;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = out.data();
  copy.dstPitch = 16;
  copy.dstHeight = 4;
  copy.WidthInBytes = 16;
  copy.Height = 4;
  copy.Depth = 3;
  CU_OK(narrow_calls().cuMemcpy3D(&copy));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(in, out);
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  CU_OK(narrow_calls().cuMemcpy3DAsync(&copy, nullptr));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(in, out);
}

TEST_F(NarrowTest, PageLockedMemoryIsAllocated) {
  void* memory = nullptr;
  CU_OK(narrow_calls().cuMemAllocHost(&memory, 4096));
  std::memset(memory, 1, 4096);
  CU_OK(cu().cuMemFreeHost(memory));
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemAllocHost(nullptr, 4096));
}

TEST_F(NarrowTest, NullDescriptionsAreRefused) {
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemAlloc(nullptr, 16));
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemcpy2D(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemcpy3D(nullptr));
}

TEST_F(NarrowTest, AnAddressOfNobodyIsRefused) {
  std::uint32_t word = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemcpyHtoD(16, &word, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemcpyDtoH(&word, 16, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemsetD8(16, 1, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemFree(16));
}

TEST_F(NarrowTest, ArraysTellWhatTheyWereMadeOf) {
  CUDA_ARRAY3D_DESCRIPTOR_v1 solid{};
  solid.Width = 16;
  solid.Height = 8;
  solid.Depth = 4;
  solid.Format = CU_AD_FORMAT_FLOAT;
  solid.NumChannels = 2;
  CUarray array = nullptr;
  CU_OK(narrow_calls().cuArray3DCreate(&array, &solid));
  CUDA_ARRAY3D_DESCRIPTOR_v1 told{};
  CU_OK(narrow_calls().cuArray3DGetDescriptor(&told, array));
  EXPECT_EQ(16u, told.Width);
  EXPECT_EQ(8u, told.Height);
  EXPECT_EQ(4u, told.Depth);
  EXPECT_EQ(CU_AD_FORMAT_FLOAT, told.Format);
  EXPECT_EQ(2u, told.NumChannels);
  CUDA_ARRAY_DESCRIPTOR_v1 flat{};
  CU_OK(narrow_calls().cuArrayGetDescriptor(&flat, array));
  EXPECT_EQ(16u, flat.Width);
  EXPECT_EQ(8u, flat.Height);
  CU_OK(cu().cuArrayDestroy(array));
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuArrayCreate(&array, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuArray3DCreate(&array, nullptr));
}

TEST_F(NarrowTest, BytesGoIntoArraysAndBack) {
  CUDA_ARRAY_DESCRIPTOR_v1 line{};
  line.Width = 256;
  line.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  line.NumChannels = 1;
  CUarray first = nullptr;
  CUarray second = nullptr;
  CU_OK(narrow_calls().cuArrayCreate(&first, &line));
  CU_OK(narrow_calls().cuArrayCreate(&second, &line));
  std::vector<std::uint8_t> in(256);
  std::vector<std::uint8_t> out(256);
  std::iota(in.begin(), in.end(), std::uint8_t{0});
  CU_OK(narrow_calls().cuMemcpyHtoA(first, 0, in.data(), 256));
  CU_OK(narrow_calls().cuMemcpyAtoA(second, 64, first, 32, 100));
  CU_OK(narrow_calls().cuMemcpyAtoH(out.data(), second, 64, 100));
  EXPECT_EQ(0, std::memcmp(out.data(), &in[32], 100));
  const Stream stream;
  CU_OK(narrow_calls().cuMemcpyHtoAAsync(second, 8, in.data(), 50, stream));
  CU_OK(narrow_calls().cuMemcpyAtoHAsync(out.data(), second, 8, 50, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(0, std::memcmp(out.data(), in.data(), 50));
  CU_OK(cu().cuArrayDestroy(first));
  CU_OK(cu().cuArrayDestroy(second));
}

TEST_F(NarrowTest, AnAddressOf32BitsIsHardlyEverMemory) {
  CUDA_ARRAY_DESCRIPTOR_v1 line{};
  line.Width = 256;
  line.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  line.NumChannels = 1;
  CUarray array = nullptr;
  CU_OK(narrow_calls().cuArrayCreate(&array, &line));
  CUdeviceptr_v1 memory = 0;
  if (narrow_calls().cuMemAlloc(&memory, 256) == CUDA_SUCCESS) {
    CU_OK(narrow_calls().cuMemsetD8(memory, 7, 256));
    CU_OK(narrow_calls().cuMemcpyDtoA(array, 0, memory, 256));
    CU_OK(narrow_calls().cuMemsetD8(memory, 0, 256));
    CU_OK(narrow_calls().cuMemcpyAtoD(memory, array, 0, 256));
    std::uint8_t byte = 0;
    CU_OK(narrow_calls().cuMemcpyDtoH(&byte, memory, 1));
    EXPECT_EQ(7, byte);
    CU_OK(narrow_calls().cuMemFree(memory));
  } else {
    CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemcpyDtoA(array, 0, 4096, 256));
    CU_IS(CUDA_ERROR_INVALID_VALUE, narrow_calls().cuMemcpyAtoD(4096, array, 0, 256));
  }
  CU_OK(cu().cuArrayDestroy(array));
}

TEST_F(NarrowTest, TextureReferencesTellNoAddressInPart) {
  CUtexref reference = nullptr;
  CU_OK(narrow_calls().cuTexRefCreate(&reference));
  const DeviceMemory memory(4096);
  CU_OK(cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT8, 1));
  CU_OK(cu().cuTexRefSetAddress_v2(nullptr, reference, memory, 4096));
  CUdeviceptr_v1 told = 0;
  const CUresult result = narrow_calls().cuTexRefGetAddress(&told, reference);
  if (memory <= kNarrowMax) {
    EXPECT_EQ(memory, told);
  } else {
    CU_IS(CUDA_ERROR_INVALID_VALUE, result);
  }
  if (memory <= kNarrowMax) {
    const auto narrow = static_cast<CUdeviceptr_v1>(CUdeviceptr{memory});
    CU_OK(narrow_calls().cuTexRefSetAddress(nullptr, reference, narrow, 256));
  }
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        narrow_calls().cuTexRefSetAddress2D(reference, nullptr, 4096, 512));
  CU_OK(narrow_calls().cuTexRefDestroy(reference));
}

}  // namespace
}  // namespace flyt::conformance
