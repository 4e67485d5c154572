// The calls of before CUDA 3.2: an address or a size of 32 bits is right, or there is none.
#include <dlfcn.h>

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

TEST_F(NarrowTest, SizesAreToldInFullOrNotAtAll) {
  std::size_t wide = 0;
  unsigned int narrow = 0;
  CU_OK(cu().cuDeviceTotalMem_v2(&wide, device));
  if (narrow_calls().cuDeviceTotalMem(&narrow, device) == CUDA_SUCCESS && wide <= kNarrowMax) {
    EXPECT_EQ(wide, narrow);
  }
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

}  // namespace
}  // namespace flyt::conformance
