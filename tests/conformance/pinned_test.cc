// Page-locked host memory: allocated and registered.
#include <sys/mman.h>

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

TEST_F(PinnedTest, TheFirstVersionRegistersWithAnyFlag) {
  CU_IS(CUDA_SUCCESS, cu().cuMemHostRegister(pages, 4096, 0x100));
  CU_OK(cu().cuMemHostUnregister(pages));
  CU_IS(CUDA_SUCCESS, cu().cuMemHostRegister(pages, 4096, CU_MEMHOSTREGISTER_IOMEMORY));
  CU_OK(cu().cuMemHostUnregister(pages));
}

// Three pages, whose protection a test changes.
class OwnPages {
 public:
  static constexpr std::size_t kPage = 4096;
  OwnPages()
      : pages_(::mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0)) {
    std::memset(pages_, 7, 3 * kPage);
  }
  ~OwnPages() { ::munmap(pages_, 3 * kPage); }
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;

  std::uint8_t* page(std::size_t i) const { return static_cast<std::uint8_t*>(pages_) + i * kPage; }
  CUdeviceptr address(std::size_t i) const { return reinterpret_cast<CUdeviceptr>(page(i)); }
  void protect(std::size_t i, int protection) const {
    ASSERT_EQ(0, ::mprotect(page(i), kPage, protection));
  }

 private:
  void* pages_;
};

TEST_F(PinnedTest, OnlyMemoryThatTheProgramMayWriteIsRegisteredForWriting) {
  const OwnPages own;
  own.protect(1, PROT_READ);
  own.protect(2, PROT_NONE);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostRegister_v2(own.page(1), OwnPages::kPage, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostRegister_v2(own.page(0), 2 * OwnPages::kPage, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemHostRegister_v2(own.page(2), OwnPages::kPage, CU_MEMHOSTREGISTER_DEVICEMAP));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostRegister_v2(own.page(0), ~std::size_t{0}, 0));
  if (attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) == 0) return;
  constexpr unsigned kReadOnly = CU_MEMHOSTREGISTER_READ_ONLY;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemHostRegister_v2(own.page(0), 3 * OwnPages::kPage, kReadOnly));
  CU_OK(cu().cuMemHostRegister_v2(own.page(0), 2 * OwnPages::kPage, kReadOnly));
  const DeviceMemory memory(OwnPages::kPage);
  CU_OK(cu().cuMemcpyHtoD_v2(memory, own.page(1), OwnPages::kPage));
  EXPECT_EQ(std::vector<std::uint8_t>(OwnPages::kPage, 7), memory.read<std::uint8_t>());
  CU_OK(cu().cuMemHostUnregister(own.page(0)));
}

TEST_F(PinnedTest, WhatIsRegisteredForReadingIsNoTarget) {
  if (attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) == 0) GTEST_SKIP();
  const OwnPages own;
  const DeviceMemory memory(64);
  for (const unsigned more : {0u, 0u + CU_MEMHOSTREGISTER_DEVICEMAP}) {
    CU_OK(cu().cuMemHostRegister_v2(own.page(0), OwnPages::kPage,
                                    CU_MEMHOSTREGISTER_READ_ONLY | more));
    unsigned flags = 0;
    CU_OK(cu().cuMemHostGetFlags(&flags, own.page(0)));
    EXPECT_EQ(0u + CU_MEMHOSTREGISTER_DEVICEMAP, flags);
    unsigned access = 0;
    CU_OK(cu().cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, own.address(0)));
    EXPECT_EQ(0u + CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ, access);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoH_v2(own.page(0), memory, 64));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoHAsync_v2(own.page(0), memory, 64, nullptr));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD8_v2(own.address(0), 1, 64));
    CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
    EXPECT_EQ(7, own.page(0)[0]);
    CU_OK(cu().cuMemHostUnregister(own.page(0)));
  }
}

TEST_F(PinnedTest, ACopyMayReachIntoPageLockedMemoryButNotOutOfIt) {
  const OwnPages own;
  constexpr std::size_t kBytes = OwnPages::kPage + 256;
  const DeviceMemory memory(kBytes);
  const Stream stream;
  const auto rows = [&](CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 256;
    copy.Height = kBytes / 256;
    return cu().cuMemcpy2DAsync_v2(&copy, stream);
  };
  const auto expect = [&](CUresult wanted) {
    CU_IS(wanted, cu().cuMemcpy(memory, own.address(0), kBytes));
    CU_IS(wanted, cu().cuMemcpyAsync(memory, own.address(0), kBytes, stream));
    CU_IS(wanted, cu().cuMemcpyAsync(own.address(0), memory, kBytes, stream));
    CU_IS(wanted, rows(memory, own.address(0)));
    CU_IS(wanted, rows(own.address(0), memory));
    CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
  };
  CU_OK(cu().cuMemHostRegister_v2(own.page(0), OwnPages::kPage, 0));
  expect(CUDA_ERROR_INVALID_VALUE);
  CU_OK(cu().cuMemHostRegister_v2(own.page(1), OwnPages::kPage, 0));
  expect(CUDA_ERROR_INVALID_VALUE);
  CU_OK(cu().cuMemHostUnregister(own.page(0)));
  expect(CUDA_SUCCESS);
  CU_OK(cu().cuMemHostUnregister(own.page(1)));
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
