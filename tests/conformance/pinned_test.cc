// Page-locked host memory: allocated and registered.
#include <cstring>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class PinnedTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    const auto start = reinterpret_cast<std::uintptr_t>(storage_.data());
    pages = storage_.data() + (4096 - start % 4096) % 4096;
  }
  // 64 KiB that begin at a page.
  std::uint8_t* pages = nullptr;

 private:
  std::vector<std::uint8_t> storage_ = std::vector<std::uint8_t>((1 << 16) + 4096);
};

TEST_F(PinnedTest, AllocatesAndFrees) {
  void* memory = nullptr;
  CU_OK(cu().cuMemHostAlloc(&memory, 100, 0));
  std::memset(memory, 3, 100);
  CU_OK(cu().cuMemFreeHost(memory));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeHost(memory));
  CU_OK(cu().cuMemAllocHost_v2(&memory, 100));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeHost(static_cast<char*>(memory) + 1));
  CU_OK(cu().cuMemFreeHost(memory));
  CU_IS(CUDA_SUCCESS, cu().cuMemFreeHost(nullptr));
}

TEST_F(PinnedTest, AllocationArgumentsAreChecked) {
  void* memory = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostAlloc(nullptr, 16, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostAlloc(&memory, 16, 0x80));
  CU_IS(CUDA_SUCCESS, cu().cuMemHostAlloc(&memory, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeHost(pages));
}

TEST_F(PinnedTest, FlagsAndDevicePointerCanBeAsked) {
  const PinnedMemory pinned(16, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  unsigned flags = 0;
  CU_OK(cu().cuMemHostGetFlags(&flags, pinned.data()));
  EXPECT_EQ(3u, flags);
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemHostGetDevicePointer_v2(&address, pinned.data(), 0));
  EXPECT_EQ(reinterpret_cast<CUdeviceptr>(pinned.data()), address);
  CU_OK(cu().cuMemHostGetDevicePointer_v2(&address, pinned.bytes() + 4, 0));
  EXPECT_EQ(reinterpret_cast<CUdeviceptr>(pinned.bytes() + 4), address);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostGetDevicePointer_v2(&address, pinned.data(), 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostGetDevicePointer_v2(&address, pages, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostGetDevicePointer_v2(nullptr, pinned.data(), 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostGetFlags(&flags, pages));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostGetFlags(nullptr, pinned.data()));
}

TEST_F(PinnedTest, RegistrationIsExclusiveAndExact) {
  CU_OK(cu().cuMemHostRegister_v2(pages + 3, 100, 0));
  CU_IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu().cuMemHostRegister_v2(pages + 3, 100, 0));
  CU_IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu().cuMemHostRegister_v2(pages + 50, 500, 0));
  CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu().cuMemHostUnregister(pages));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostUnregister(pages + 50));
  CU_OK(cu().cuMemHostUnregister(pages + 3));
  CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu().cuMemHostUnregister(pages + 3));
}

TEST_F(PinnedTest, RegistrationArgumentsAreChecked) {
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostRegister_v2(nullptr, 16, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostRegister_v2(pages, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostRegister_v2(pages, 4096, 0x100));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostUnregister(nullptr));
  const PinnedMemory pinned(16);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostUnregister(pinned.data()));
}

TEST_F(PinnedTest, RegisteredMemoryKeepsItsContentsAndCopies) {
  pages[17] = 99;
  CU_OK(cu().cuMemHostRegister_v2(pages, 1 << 16, 0));
  EXPECT_EQ(99, pages[17]);
  const DeviceMemory memory(1 << 16);
  const Stream stream;
  CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, pages, 1 << 16, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  pages[17] = 0;
  CU_OK(cu().cuMemcpyDtoHAsync_v2(pages, memory, 1 << 16, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(99, pages[17]);
  CU_OK(cu().cuMemHostUnregister(pages));
  EXPECT_EQ(99, pages[17]);
}

TEST_F(PinnedTest, BlockingCopiesOfAllSizesArriveAndMayBeOverwritten) {
  for (const std::size_t bytes : {1u, 4096u, 100'000u, 262'144u, 262'145u, 1'000'000u}) {
    const PinnedMemory pinned(bytes);
    const DeviceMemory memory(bytes);
    std::memset(pinned.data(), 0x5a, bytes);
    CU_OK(cu().cuMemcpyHtoD_v2(memory, pinned.data(), bytes));
    std::memset(pinned.data(), 0, bytes);
    EXPECT_EQ(std::vector<std::uint8_t>(bytes, 0x5a), memory.read<std::uint8_t>()) << bytes;
  }
}

TEST_F(PinnedTest, FreeingRegisteredMemoryIsRefused) {
  CU_OK(cu().cuMemHostRegister_v2(pages, 4096, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeHost(pages));
  CU_OK(cu().cuMemHostUnregister(pages));
}

TEST_F(PinnedTest, AKernelReadsAndWritesPinnedMemory) {
  const PinnedMemory pinned(16);
  const Module module(kBasicPtx);
  std::uint32_t* words = pinned.as<std::uint32_t>();
  words[0] = 41;
  words[1] = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(pinned.data());
  CU_OK(launch(module.function("add_one"), 1, 32, nullptr, address, 2u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(42u, words[0]);
  EXPECT_EQ(1u, words[1]);
}

TEST_F(PinnedTest, ManyPinnedBuffersAreFine) {
  std::vector<void*> buffers(300);
  for (void*& buffer : buffers) CU_OK(cu().cuMemHostAlloc(&buffer, 4096, 0));
  for (void* buffer : buffers) std::memset(buffer, 1, 4096);
  for (void* buffer : buffers) CU_OK(cu().cuMemFreeHost(buffer));
}

}  // namespace
}  // namespace flyt::conformance
