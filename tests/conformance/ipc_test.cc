// Memory and events that two processes use.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"
#include "tests/conformance/peer_process.h"

namespace flyt::conformance {
namespace {

constexpr std::size_t kBlockBytes = 2 << 20;

HandleBytes bytes_of(const CUipcMemHandle& handle) {
  HandleBytes bytes;
  std::memcpy(bytes.data(), handle.reserved, bytes.size());
  return bytes;
}

// Memory of cuMemAlloc.
class IpcMemoryTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    const Unrecorded quiet;
    const DeviceMemory probe(16);
    unsigned capable = 0;
    cu().cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, probe);
    if (capable == 0) GTEST_SKIP() << "memory is not shared here";
  }
};

TEST_F(IpcMemoryTest, AnotherProcessReadsAndWritesIt) {
  constexpr unsigned kCount = 100'000;
  const DeviceMemory before(1000);
  const DeviceMemory memory(4 * kCount);
  memory.write(std::vector<std::uint32_t>(kCount, 40));
  CUipcMemHandle handle;
  CU_OK(cu().cuIpcGetMemHandle(&handle, memory));
  PeerProcess peer;
  CU_OK(peer.open(bytes_of(handle)));
  std::uint32_t word = 0;
  CU_OK(peer.read(word));
  EXPECT_EQ(40u, word);
  CU_OK(peer.add_one(kCount));
  EXPECT_EQ(std::vector<std::uint32_t>(kCount, 41), memory.read<std::uint32_t>());
  memory.write(std::vector<std::uint32_t>(kCount, 7));
  CU_OK(peer.read(word));
  EXPECT_EQ(7u, word);
  CU_OK(peer.close());
}

TEST_F(IpcMemoryTest, AHandleIsForTheWholeAllocation) {
  const DeviceMemory memory(4096);
  memory.write(std::vector<std::uint32_t>(1024, 3));
  CUipcMemHandle first;
  CUipcMemHandle second;
  CU_OK(cu().cuIpcGetMemHandle(&first, memory));
  CU_OK(cu().cuIpcGetMemHandle(&second, memory + 100));
  PeerProcess peer;
  CU_OK(peer.open(bytes_of(second)));
  CU_OK(peer.add_one(1));
  EXPECT_EQ(4u, memory.read<std::uint32_t>()[0]);
}

TEST_F(IpcMemoryTest, WhatWasOpenedTwiceIsClosedTwice) {
  const DeviceMemory memory(64);
  memory.write(std::vector<std::uint32_t>(16, 9));
  CUipcMemHandle handle;
  CU_OK(cu().cuIpcGetMemHandle(&handle, memory));
  PeerProcess peer;
  CU_OK(peer.open(bytes_of(handle)));
  CU_OK(peer.open(bytes_of(handle)));
  CU_OK(peer.close());
  std::uint32_t word = 0;
  CU_OK(peer.read(word));
  EXPECT_EQ(9u, word);
  CU_OK(peer.close());
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, peer.close());
}

TEST_F(IpcMemoryTest, WhatIsOpenIsOpenedToAnotherDeviceToo) {
  if (!has_peer()) GTEST_SKIP() << "no two devices that reach each other";
  const DeviceMemory memory(64);
  memory.write(std::vector<std::uint32_t>(16, 9));
  CUipcMemHandle handle;
  CU_OK(cu().cuIpcGetMemHandle(&handle, memory));
  PeerProcess peer;
  CU_OK(peer.open(bytes_of(handle)));
  CU_OK(peer.use_device(1));
  CU_OK(peer.open(bytes_of(handle)));
  CU_OK(peer.add_one(16));
  EXPECT_EQ(10u, memory.read<std::uint32_t>()[15]);
  CU_OK(peer.close());
}

TEST_F(IpcMemoryTest, TheProcessThatMadeAHandleDoesNotOpenIt) {
  const DeviceMemory memory(64);
  CUipcMemHandle handle;
  CUdeviceptr opened = 0;
  CU_OK(cu().cuIpcGetMemHandle(&handle, memory));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT,
        cu().cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

TEST_F(IpcMemoryTest, ForgedHandlesOpenNothing) {
  const DeviceMemory memory(64);
  CUipcMemHandle handle;
  CU_OK(cu().cuIpcGetMemHandle(&handle, memory));
  PeerProcess peer;
  HandleBytes zeros{};
  EXPECT_NE(CUDA_SUCCESS, peer.open(zeros));
}

TEST_F(IpcMemoryTest, OnlyDeviceMemoryHasHandles) {
  CUipcMemHandle handle;
  const DeviceMemory memory(64);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuIpcGetMemHandle(nullptr, memory));
  const PinnedMemory pinned(64);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(pinned.data())));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuIpcCloseMemHandle(memory));
}

// Memory of cuMemCreate.
class ShareableTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0) {
      GTEST_SKIP() << "memory is not shared here";
    }
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CU_OK(cu().cuMemCreate(&allocation, kBlockBytes, &properties, 0));
    CU_OK(cu().cuMemAddressReserve(&address, kBlockBytes, 0, 0, 0));
    CU_OK(map(address, allocation));
  }
  void TearDown() override {
    const Unrecorded quiet;
    if (allocation != 0) let_go();
  }
  void let_go() {
    cu().cuMemUnmap(address, kBlockBytes);
    cu().cuMemRelease(allocation);
    cu().cuMemAddressFree(address, kBlockBytes);
    allocation = 0;
  }
  static CUresult map(CUdeviceptr at, CUmemGenericAllocationHandle memory) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult result = cu().cuMemMap(at, kBlockBytes, 0, memory, 0);
    return result == CUDA_SUCCESS ? cu().cuMemSetAccess(at, kBlockBytes, &access, 1) : result;
  }
  CUresult export_file(Fd& file) {
    int number = -1;
    const CUresult result = cu().cuMemExportToShareableHandle(
        &number, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    file = Fd(number);
    return result;
  }
  static std::uint32_t word_at(CUdeviceptr at) {
    std::uint32_t word = 0;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuMemcpyDtoH_v2(&word, at, 4));
    return word;
  }
  void set_word(std::uint32_t word) {
    CU_OK(cu().cuMemcpyHtoD_v2(address, &word, 4));
    CU_OK(cu().cuCtxSynchronize());
  }

  CUmemGenericAllocationHandle allocation = 0;
  CUdeviceptr address = 0;
};

TEST_F(ShareableTest, AnotherProcessMapsItByAFileDescriptor) {
  set_word(50);
  Fd file;
  CU_OK(export_file(file));
  EXPECT_LE(0, file.get());
  PeerProcess peer;
  CU_OK(peer.import(file.get(), kBlockBytes));
  std::uint32_t word = 0;
  CU_OK(peer.read(word));
  EXPECT_EQ(50u, word);
  CU_OK(peer.add_one(16));
  EXPECT_EQ(51u, word_at(address));
}

TEST_F(ShareableTest, AProcessMayImportItsOwn) {
  set_word(60);
  Fd file;
  CU_OK(export_file(file));
  CUmemGenericAllocationHandle again = 0;
  CU_OK(cu().cuMemImportFromShareableHandle(
      &again, reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  file.close();
  CUdeviceptr other = 0;
  CU_OK(cu().cuMemAddressReserve(&other, kBlockBytes, 0, 0, 0));
  CU_OK(map(other, again));
  EXPECT_EQ(60u, word_at(other));
  set_word(61);
  EXPECT_EQ(61u, word_at(other));
  CU_OK(cu().cuMemUnmap(other, kBlockBytes));
  CU_OK(cu().cuMemRelease(again));
  CU_OK(cu().cuMemAddressFree(other, kBlockBytes));
}

TEST_F(ShareableTest, ItLivesAsLongAsAnybodyHasIt) {
  set_word(70);
  Fd file;
  CU_OK(export_file(file));
  PeerProcess peer;
  CU_OK(peer.import(file.get(), kBlockBytes));
  file.close();
  let_go();
  std::uint32_t word = 0;
  CU_OK(peer.read(word));
  EXPECT_EQ(70u, word);
}

TEST_F(ShareableTest, ItOutlivesTheProcessThatMadeIt) {
  CUmemGenericAllocationHandle theirs = 0;
  {
    PeerProcess peer;
    Fd file;
    CU_OK(peer.make(kBlockBytes, 80, file));
    CU_OK(cu().cuMemImportFromShareableHandle(
        &theirs, reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get())),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  }
  CUdeviceptr at = 0;
  CU_OK(cu().cuMemAddressReserve(&at, kBlockBytes, 0, 0, 0));
  CU_OK(map(at, theirs));
  EXPECT_EQ(80u, word_at(at));
  CU_OK(cu().cuMemUnmap(at, kBlockBytes));
  CU_OK(cu().cuMemRelease(theirs));
  CU_OK(cu().cuMemAddressFree(at, kBlockBytes));
}

// As many as a session may share at a time, so that what a failure left behind would be noticed.
TEST_F(ShareableTest, WhatCouldNotBeExportedLeavesNothingBehind) {
  constexpr int kTries = 4200;
  const Unrecorded quiet;
  rlimit before{};
  ASSERT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &before));
  const Fd next(::dup(0));
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get()) + 1;
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &none));
  Fd file;
  int exported = 0;
  for (int i = 0; i < kTries; ++i) exported += export_file(file) == CUDA_SUCCESS ? 1 : 0;
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &before));
  EXPECT_EQ(0, exported);
  EXPECT_EQ(CUDA_SUCCESS, export_file(file));
}

TEST_F(ShareableTest, ArgumentsAreChecked) {
  int number = -1;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemExportToShareableHandle(nullptr, allocation,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemExportToShareableHandle(&number, allocation,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle own = 0;
  CU_OK(cu().cuMemCreate(&own, kBlockBytes, &properties, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemExportToShareableHandle(
                                      &number, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CU_OK(cu().cuMemRelease(own));
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CUmemGenericAllocationHandle imported = 0;
  const Unrecorded quiet;
  EXPECT_NE(CUDA_SUCCESS,
            cu().cuMemImportFromShareableHandle(
                &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(nothing.get())),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

class IpcEventTest : public ShareableTest {
 protected:
  void SetUp() override {
    ShareableTest::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED) == 0) {
      GTEST_SKIP() << "events are not shared here";
    }
  }
  static constexpr unsigned kShared = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  static CUresult handle_of(CUevent event, HandleBytes& bytes) {
    CUipcEventHandle handle;
    const CUresult result = cu().cuIpcGetEventHandle(&handle, event);
    std::memcpy(bytes.data(), handle.reserved, bytes.size());
    return result;
  }
};

TEST_F(IpcEventTest, AnotherProcessWaitsForIt) {
  set_word(1);
  Fd file;
  CU_OK(export_file(file));
  PeerProcess peer;
  CU_OK(peer.import(file.get(), kBlockBytes));
  const Event event(kShared);
  HandleBytes handle;
  CU_OK(handle_of(event, handle));
  CU_OK(peer.open_event(handle));
  const Stream stream;
  const Module module(kBasicPtx);
  Gate gate;
  gate.close(stream);
  CU_OK(launch(module.function("store_value"), 1, 1, stream, address, 91u));
  CU_OK(cu().cuEventRecord(event, stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, peer.wait_for_event());
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
  gate.open();
  std::uint32_t word = 0;
  CU_OK(peer.finish(word));
  EXPECT_EQ(91u, word);
  CU_OK(cu().cuEventSynchronize(event));
}

TEST_F(IpcEventTest, ArgumentsAreChecked) {
  const Event plain(CU_EVENT_DISABLE_TIMING);
  const Event shared(kShared);
  CUipcEventHandle handle;
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuIpcGetEventHandle(&handle, plain));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuIpcGetEventHandle(nullptr, shared));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuIpcGetEventHandle(&handle, nullptr));
  PeerProcess peer;
  CU_IS(CUDA_ERROR_MAP_FAILED, peer.open_event(HandleBytes{}));
}

// A pool that other processes may import.
class ShareablePoolTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    const Unrecorded quiet;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    if (cu().cuMemPoolCreate(&pool, &properties) != CUDA_SUCCESS) {
      GTEST_SKIP() << "pools are not shared here";
    }
  }
  void TearDown() override {
    const Unrecorded quiet;
    if (pool != nullptr) cu().cuMemPoolDestroy(pool);
  }
  Fd file() const { return file_of(pool); }
  static Fd file_of(CUmemoryPool pool) {
    int number = -1;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuMemPoolExportToShareableHandle(
                                &number, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return Fd(number);
  }
  static HandleBytes data_of(CUdeviceptr address) {
    CUmemPoolPtrExportData data{};
    EXPECT_EQ(CUDA_SUCCESS, cu().cuMemPoolExportPointer(&data, address));
    HandleBytes bytes;
    std::memcpy(bytes.data(), data.reserved, bytes.size());
    return bytes;
  }
  CUmemoryPool pool = nullptr;
};

TEST_F(ShareablePoolTest, AnotherProcessReadsAndWritesAnAllocation) {
  constexpr unsigned kCount = 5000;
  const Stream stream;
  CUdeviceptr before = 0;
  CUdeviceptr memory = 0;
  CU_OK(cu().cuMemAllocFromPoolAsync(&before, 3000, pool, stream));
  CU_OK(cu().cuMemAllocFromPoolAsync(&memory, 4 * kCount, pool, stream));
  CU_OK(cu().cuMemsetD32Async(memory, 40, kCount, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  PeerProcess peer;
  CU_OK(peer.import_pool(file().get()));
  CU_OK(peer.import_pointer(data_of(memory)));
  std::uint32_t word = 0;
  CU_OK(peer.read(word));
  EXPECT_EQ(40u, word);
  CU_OK(peer.add_one(kCount));
  std::vector<std::uint32_t> values(kCount);
  CU_OK(cu().cuMemcpyDtoH_v2(values.data(), memory, 4 * kCount));
  EXPECT_EQ(std::vector<std::uint32_t>(kCount, 41), values);
  CU_OK(peer.free_pointer());
  CU_OK(cu().cuMemFreeAsync(memory, stream));
  CU_OK(cu().cuMemFreeAsync(before, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(ShareablePoolTest, AnImportedPoolIsOpenedToOtherDevices) {
  if (!has_peer()) GTEST_SKIP() << "no two devices that reach each other";
  const Stream stream;
  CUdeviceptr memory = 0;
  CU_OK(cu().cuMemAllocFromPoolAsync(&memory, 4096, pool, stream));
  CU_OK(cu().cuMemsetD32Async(memory, 5, 1024, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  PeerProcess peer;
  CU_OK(peer.import_pool(file().get()));
  CU_OK(peer.import_pointer(data_of(memory)));
  CU_OK(peer.open_pool_to(1));
  CU_OK(peer.use_device(1));
  CU_OK(peer.add_one(1024));
  std::uint32_t word = 0;
  CU_OK(cu().cuMemcpyDtoH_v2(&word, memory, 4));
  EXPECT_EQ(6u, word);
  CU_OK(peer.free_pointer());
  CU_OK(cu().cuMemFreeAsync(memory, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
}

// So programs find out of which of several pools a pointer is.
TEST_F(ShareablePoolTest, APointerIsOfOnePoolAlone) {
  const Stream stream;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemoryPool other = nullptr;
  CU_OK(cu().cuMemPoolCreate(&other, &properties));
  CUdeviceptr memory = 0;
  CU_OK(cu().cuMemAllocFromPoolAsync(&memory, 4096, other, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  // Its pointers are exported once it is.
  CUmemPoolPtrExportData early{};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolExportPointer(&early, memory));
  const Fd other_file = file_of(other);
  PeerProcess peer;
  CU_OK(peer.import_pool(file().get()));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, peer.import_pointer(data_of(memory)));
  CU_OK(cu().cuMemFreeAsync(memory, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_OK(cu().cuMemPoolDestroy(other));
}

TEST_F(ShareablePoolTest, AnImportedPoolGivesNoMemory) {
  PeerProcess peer;
  CU_OK(peer.import_pool(file().get()));
  EXPECT_NE(CUDA_SUCCESS, peer.allocate_from_pool());
}

TEST_F(ShareablePoolTest, WhatIsFreedThereStaysHere) {
  const Stream stream;
  CUdeviceptr memory = 0;
  CU_OK(cu().cuMemAllocFromPoolAsync(&memory, 4096, pool, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  PeerProcess peer;
  CU_OK(peer.import_pool(file().get()));
  CU_OK(peer.import_pointer(data_of(memory)));
  CU_OK(peer.free_pointer());
  CU_OK(cu().cuMemsetD8Async(memory, 1, 4096, stream));
  CU_OK(cu().cuMemFreeAsync(memory, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(ShareablePoolTest, WhatWasFreedThereIsNotFreedAgain) {
  const Stream stream;
  CUdeviceptr memory = 0;
  CU_OK(cu().cuMemAllocFromPoolAsync(&memory, 4096, pool, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  PeerProcess peer;
  CU_OK(peer.import_pool(file().get()));
  CU_OK(peer.import_pointer(data_of(memory)));
  CU_OK(peer.free_pointer());
  EXPECT_NE(CUDA_SUCCESS, peer.free_pointer());
  CU_OK(cu().cuMemsetD8Async(memory, 1, 4096, stream));
  CU_OK(cu().cuMemFreeAsync(memory, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(ShareablePoolTest, OnlyWhatIsMadeForItIsShared) {
  // Made first: after a refused export NVIDIA's driver has been seen to make no stream.
  const Stream stream;
  int number = -1;
  CUmemoryPool standard = nullptr;
  CU_OK(cu().cuDeviceGetDefaultMemPool(&standard, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPoolExportToShareableHandle(&number, standard,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPoolExportToShareableHandle(&number, pool, CU_MEM_HANDLE_TYPE_WIN32, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolExportToShareableHandle(
                                      nullptr, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUdeviceptr memory = 0;
  CUmemPoolPtrExportData data{};
  CU_OK(cu().cuMemAllocFromPoolAsync(&memory, 4096, standard, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolExportPointer(&data, memory));
  CU_OK(cu().cuMemFreeAsync(memory, stream));
  const DeviceMemory ordinary(64);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolExportPointer(&data, ordinary));
}

TEST_F(ShareablePoolTest, AFileThatIsNoPoolsIsRefused) {
  const Fd other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  PeerProcess peer;
  EXPECT_NE(CUDA_SUCCESS, peer.import_pool(other.get()));
}

}  // namespace
}  // namespace flyt::conformance
