// Managed memory: one pointer for the program and its kernels, and what can be said about it.
#include <cstring>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

// Managed variables: count (5) and row (8 words, the first 1 and 2). bump(): count += row[1], and
// row[i] becomes i for i from 4.
const char* const kManagedPtx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 count = 5;
.visible .global .attribute(.managed) .align 16 .b32 row[8] = {1, 2};
.visible .global .align 4 .u32 plain = 9;
.visible .entry bump()
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.global.u32 %r1, [row+4];
  ld.global.u32 %r2, [count];
  add.u32 %r3, %r1, %r2;
  st.global.u32 [count], %r3;
  mov.u32 %r4, 4;
  st.global.u32 [row+16], %r4;
  ret;
}
)";

class ManagedMemory {
 public:
  explicit ManagedMemory(std::size_t bytes, unsigned flags = CU_MEM_ATTACH_GLOBAL) {
    EXPECT_EQ(CUDA_SUCCESS, cu().cuMemAllocManaged(&address_, bytes, flags));
  }
  ~ManagedMemory() {
    const Unrecorded quiet;
    cu().cuMemFree_v2(address_);
  }
  ManagedMemory(const ManagedMemory&) = delete;
  ManagedMemory& operator=(const ManagedMemory&) = delete;
  operator CUdeviceptr() const { return address_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(address_);
  }

 private:
  CUdeviceptr address_ = 0;
};

class ManagedTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 0) GTEST_SKIP() << "none here";
  }
  static constexpr CUmemLocation kDevice{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  static constexpr CUmemLocation kHost{CU_MEM_LOCATION_TYPE_HOST, 0};
};

TEST_F(ManagedTest, TheProgramAndItsKernelsUseOnePointer) {
  constexpr unsigned kCount = 10'000;
  const ManagedMemory memory(4 * kCount);
  auto* words = memory.as<std::uint32_t>();
  const Module module(kBasicPtx);
  const CUfunction add_one = module.function("add_one");
  for (unsigned i = 0; i < kCount; ++i) words[i] = i;
  for (unsigned round = 1; round <= 3; ++round) {
    CU_OK(launch(add_one, (kCount + 255) / 256, 256, nullptr, static_cast<CUdeviceptr>(memory),
                 kCount));
    CU_OK(cu().cuCtxSynchronize());
    for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(i + 2 * round - 1, words[i]) << i;
    for (unsigned i = 0; i < kCount; ++i) ++words[i];
  }
}

TEST_F(ManagedTest, ItsFlagsAreThoseOfHostMemoryThatKernelsReach) {
  CUdeviceptr memory = 0;
  unsigned flags = 0;
  CU_OK(cu().cuMemAllocManaged(&memory, 1000, CU_MEM_ATTACH_GLOBAL));
  CU_OK(cu().cuMemHostGetFlags(&flags, reinterpret_cast<void*>(memory)));
  EXPECT_EQ(unsigned{CU_MEMHOSTALLOC_DEVICEMAP}, flags);
  CU_OK(cu().cuMemFree_v2(memory));
}

TEST_F(ManagedTest, AllocationArgumentsAreChecked) {
  CUdeviceptr address = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocManaged(nullptr, 16, CU_MEM_ATTACH_GLOBAL));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocManaged(&address, 16, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocManaged(&address, 16, CU_MEM_ATTACH_SINGLE));
  CU_OK(cu().cuMemAllocManaged(&address, 16, CU_MEM_ATTACH_HOST));
  CU_OK(cu().cuMemFree_v2(address));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree_v2(address));
}

TEST_F(ManagedTest, ItsPointerSaysThatItIsManaged) {
  const ManagedMemory memory(1000);
  unsigned managed = 0;
  CU_OK(cu().cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory + 500));
  EXPECT_EQ(1u, managed);
  std::uint64_t pointer = 0;
  CU_OK(cu().cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory + 500));
  EXPECT_EQ(memory + 500, pointer);
  CU_OK(cu().cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory + 500));
  EXPECT_EQ(memory + 500, pointer);
  const DeviceMemory other(16);
  CU_OK(cu().cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, other));
  EXPECT_EQ(0u, managed);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  CU_OK(cu().cuMemGetAddressRange_v2(&base, &size, memory + 999));
  EXPECT_EQ(memory, base);
}

TEST_F(ManagedTest, CopiesAndFillsTreatItAsBothKinds) {
  constexpr std::size_t kBytes = 20'000;
  const ManagedMemory memory(kBytes);
  const DeviceMemory on_device(kBytes);
  std::vector<std::uint8_t> host(kBytes, 3);
  CU_OK(cu().cuMemcpyHtoD_v2(memory, host.data(), kBytes));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(3, memory.as<std::uint8_t>()[kBytes - 1]);
  std::memset(memory.as<void>(), 4, kBytes);
  CU_OK(cu().cuMemcpyDtoD_v2(on_device, memory, kBytes));
  CU_OK(cu().cuMemsetD8_v2(memory, 5, kBytes / 2));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(5, memory.as<std::uint8_t>()[0]);
  EXPECT_EQ(4, memory.as<std::uint8_t>()[kBytes / 2]);
  EXPECT_EQ(std::vector<std::uint8_t>(kBytes, 4), on_device.read<std::uint8_t>());
  CU_OK(cu().cuMemcpyDtoH_v2(host.data(), memory, kBytes));
  EXPECT_EQ(5, host[0]);
  EXPECT_EQ(4, host[kBytes - 1]);
  CU_OK(cu().cuMemcpy(memory, on_device, kBytes));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(4, memory.as<std::uint8_t>()[0]);
}

TEST_F(ManagedTest, AttachmentChecksItsArguments) {
  const ManagedMemory memory(4096, CU_MEM_ATTACH_HOST);
  const Stream stream;
  CU_OK(cu().cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_SINGLE));
  CU_OK(cu().cuStreamAttachMemAsync(stream, memory, 4096, CU_MEM_ATTACH_HOST));
  CU_OK(cu().cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_GLOBAL));
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_OK(cu().cuStreamAttachMemAsync(CU_STREAM_LEGACY, memory, 0, CU_MEM_ATTACH_SINGLE));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuStreamAttachMemAsync(nullptr, memory, 0, CU_MEM_ATTACH_SINGLE));
  const DeviceMemory other(4096);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuStreamAttachMemAsync(stream, other, 0, CU_MEM_ATTACH_GLOBAL));
}

TEST_F(ManagedTest, PrefetchesMoveItAndAreRemembered) {
  const ManagedMemory memory(1 << 20);
  std::memset(memory.as<void>(), 6, 1 << 20);
  const Stream stream;
  CU_OK(cu().cuMemPrefetchAsync_v2(memory, 1 << 20, kDevice, 0, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  int where = 77;
  CU_OK(cu().cuMemRangeGetAttribute(&where, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                    memory, 1 << 20));
  EXPECT_EQ(0, where);
  CU_OK(cu().cuMemPrefetchAsync_v2(memory, 1 << 20, kHost, 0, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_OK(cu().cuMemRangeGetAttribute(&where, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                    memory, 1 << 20));
  EXPECT_EQ(CU_DEVICE_CPU, where);
  EXPECT_EQ(6, memory.as<std::uint8_t>()[12345]);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPrefetchAsync_v2(memory, 0, kDevice, 0, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPrefetchAsync_v2(memory, 4096, kDevice, 1, stream));
  CU_IS(CUDA_ERROR_INVALID_DEVICE,
        cu().cuMemPrefetchAsync_v2(memory, 4096, {CU_MEM_LOCATION_TYPE_DEVICE, 99}, 0, stream));
  const DeviceMemory other(4096);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPrefetchAsync_v2(other, 4096, kDevice, 0, stream));
}

TEST_F(ManagedTest, AdviceIsRemembered) {
  constexpr std::size_t kBytes = 4 << 20;
  const ManagedMemory memory(kBytes);
  CU_OK(cu().cuMemAdvise_v2(memory, kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
  CU_OK(cu().cuMemAdvise_v2(memory, kBytes / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kDevice));
  CU_OK(cu().cuMemAdvise_v2(memory, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kDevice));
  int read_mostly = 0;
  int preferred = 0;
  int accessors[2] = {};
  void* values[] = {&read_mostly, &preferred, accessors};
  std::size_t sizes[] = {4, 4, 8};
  CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY};
  CU_OK(cu().cuMemRangeGetAttributes(values, sizes, attributes, 3, memory, kBytes));
  EXPECT_EQ(1, read_mostly);
  EXPECT_EQ(CU_DEVICE_INVALID, preferred);
  EXPECT_EQ(0, accessors[0]);
  EXPECT_EQ(CU_DEVICE_INVALID, accessors[1]);
  CU_OK(cu().cuMemRangeGetAttributes(values, sizes, attributes, 3, memory, kBytes / 2));
  EXPECT_EQ(0, preferred);
  CU_OK(cu().cuMemAdvise_v2(memory, kBytes, CU_MEM_ADVISE_UNSET_READ_MOSTLY, kDevice));
  CU_OK(cu().cuMemAdvise_v2(memory, kBytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY, kDevice));
  CU_OK(cu().cuMemRangeGetAttributes(values, sizes, attributes, 3, memory, kBytes));
  EXPECT_EQ(0, read_mostly);
  EXPECT_EQ(CU_DEVICE_INVALID, accessors[0]);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemAdvise_v2(memory, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemRangeGetAttribute(&preferred, 3, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                    memory, kBytes));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemRangeGetAttribute(nullptr, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory,
                                    kBytes));
}

// What is advised for a NUMA node matters where GPU and host share page tables alone.
TEST_F(ManagedTest, AdviceForANodeIsTakenAndForgotten) {
  constexpr std::size_t kBytes = 2 << 20;
  const ManagedMemory memory(kBytes);
  const CUmemLocation node{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  if (attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) != 0) {
    GTEST_SKIP() << "they do";
  }
  CU_OK(cu().cuMemAdvise_v2(memory, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, node));
  CU_OK(cu().cuMemAdvise_v2(memory, kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, node));
  int type = 9;
  int id = 9;
  int mostly = 9;
  const auto ask = [&](CUmem_range_attribute which, int& out) {
    return cu().cuMemRangeGetAttribute(&out, 4, which, memory, kBytes);
  };
  CU_OK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, type));
  CU_OK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, id));
  CU_OK(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, mostly));
  EXPECT_EQ(0, type);
  EXPECT_EQ(CU_DEVICE_INVALID, id);
  EXPECT_EQ(0, mostly);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemAdvise_v2(memory, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, node));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemAdvise_v2(memory, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                            {CU_MEM_LOCATION_TYPE_HOST_NUMA, 5000}));
  CU_OK(cu().cuMemPrefetchAsync_v2(memory, kBytes, node, 0, nullptr));
  CU_OK(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, id));
  EXPECT_EQ(CU_DEVICE_CPU, id);
  CU_OK(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, type));
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_HOST_NUMA, type);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPrefetchAsync_v2(memory, kBytes, {CU_MEM_LOCATION_TYPE_HOST_NUMA, 5000}, 0,
                                   nullptr));
}

TEST_F(ManagedTest, AdviceNamesAPlaceThatThereIs) {
  constexpr std::size_t kBytes = 2 << 20;
  const ManagedMemory memory(kBytes);
  for (const auto advice : {CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_UNSET_READ_MOSTLY,
                            CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION}) {
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAdvise_v2(memory, kBytes, advice, {}));
    CU_OK(cu().cuMemAdvise_v2(memory, kBytes, advice, {CU_MEM_LOCATION_TYPE_DEVICE, 99}));
  }
  for (const auto advice : {CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_ACCESSED_BY,
                            CU_MEM_ADVISE_UNSET_ACCESSED_BY}) {
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cu().cuMemAdvise_v2(memory, kBytes, advice, {CU_MEM_LOCATION_TYPE_DEVICE, 99}));
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuMemAdvise(memory, kBytes, advice, 99));
  }
}

TEST_F(ManagedTest, PrefetchesAndDiscardsComeInBatches) {
  if (!cu().cuMemPrefetchBatchAsync.present()) GTEST_SKIP() << "an older driver";
  constexpr std::size_t kBytes = 2 << 20;
  const ManagedMemory first(kBytes);
  const ManagedMemory second(kBytes);
  const Stream stream;
  CUdeviceptr pointers[] = {first, second};
  std::size_t sizes[] = {kBytes, kBytes};
  CUmemLocation locations[] = {kDevice, kHost};
  std::size_t indices[] = {0, 1};
  CU_OK(cu().cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, indices, 2, 0, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  int where = 77;
  CU_OK(cu().cuMemRangeGetAttribute(&where, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                    second, kBytes));
  EXPECT_EQ(CU_DEVICE_CPU, where);
  CU_OK(cu().cuMemDiscardBatchAsync(pointers, sizes, 2, 0, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  // Discarded memory can be written and used again.
  std::memset(first.as<void>(), 8, kBytes);
  EXPECT_EQ(8, first.as<std::uint8_t>()[kBytes - 1]);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPrefetchBatchAsync(pointers, sizes, 0, locations, indices, 1, 0, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, indices, 2, 0, nullptr));
  locations[1] = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPrefetchBatchAsync(pointers, sizes, 2, locations, indices, 2, 0, stream));
}

TEST_F(ManagedTest, VariablesOfAModuleAreTheProgramsToo) {
  const Module module(kManagedPtx);
  const CUdeviceptr count = module.global("count");
  const CUdeviceptr row = module.global("row");
  auto* words = reinterpret_cast<std::uint32_t*>(row);
  auto* counter = reinterpret_cast<std::uint32_t*>(count);
  unsigned managed = 0;
  CU_OK(cu().cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, count));
  EXPECT_EQ(1u, managed);
  EXPECT_EQ(5u, *counter);
  EXPECT_EQ(2u, words[1]);
  words[1] = 10;
  CU_OK(launch(module.function("bump"), 1, 1, nullptr));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(15u, *counter);
  EXPECT_EQ(4u, words[4]);
}

TEST_F(ManagedTest, VariablesOfALibraryAreFoundAsManaged) {
  CUlibrary library = nullptr;
  CU_OK(cu().cuLibraryLoadData(&library, kManagedPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUdeviceptr count = 0;
  std::size_t bytes = 0;
  CU_OK(cu().cuLibraryGetManaged(&count, &bytes, library, "count"));
  EXPECT_EQ(4u, bytes);
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuLibraryGetManaged(&count, &bytes, library, "plain"));
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuLibraryGetManaged(&count, &bytes, library, "missing"));
  CUkernel kernel = nullptr;
  CU_OK(cu().cuLibraryGetKernel(&kernel, library, "bump"));
  auto* counter = reinterpret_cast<std::uint32_t*>(count);
  *counter = 100;
  CU_OK(launch(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(102u, *counter);
  CU_OK(cu().cuLibraryUnload(library));
}

}  // namespace
}  // namespace flyt::conformance
