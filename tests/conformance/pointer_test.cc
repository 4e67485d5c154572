// Pointer attributes: what an address is.

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using PointerTest = ContextTest;

template <class T>
CUresult get(T* out, CUpointer_attribute which, CUdeviceptr address) {
  return cu().cuPointerGetAttribute(out, which, address);
}

TEST_F(PointerTest, DeviceMemoryDescribesItself) {
  const DeviceMemory memory(1000);
  CUcontext owner = nullptr;
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  CUdeviceptr device_pointer = 0;
  CU_OK(get(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory + 100));
  EXPECT_EQ(context, owner);
  CU_OK(get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  EXPECT_EQ(CU_MEMORYTYPE_DEVICE, type);
  CU_OK(get(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory + 7));
  EXPECT_EQ(memory + 7, device_pointer);
  void* host_pointer = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, get(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory));
  int ordinal = -1;
  CU_OK(get(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  EXPECT_EQ(device, ordinal);
  unsigned managed = 9;
  CU_OK(get(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
  EXPECT_EQ(0u, managed & 0xff);
  CUdeviceptr start = 0;
  std::size_t size = 0;
  CU_OK(get(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 999));
  CU_OK(get(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 999));
  EXPECT_EQ(static_cast<CUdeviceptr>(memory), start);
  EXPECT_EQ(1000u, size);
}

TEST_F(PointerTest, PinnedMemoryDescribesItself) {
  const PinnedMemory pinned(64);
  const auto address = reinterpret_cast<CUdeviceptr>(pinned.data());
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  void* host_pointer = nullptr;
  CUdeviceptr device_pointer = 0;
  CU_OK(get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 8));
  EXPECT_EQ(CU_MEMORYTYPE_HOST, type);
  CU_OK(get(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 8));
  EXPECT_EQ(pinned.bytes() + 8, host_pointer);
  CU_OK(get(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
  EXPECT_EQ(address, device_pointer);
}

TEST_F(PointerTest, UnknownAddressesAreInvalid) {
  int local = 0;
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&local)));
  CU_IS(CUDA_ERROR_INVALID_VALUE, get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x10));
  CU_IS(CUDA_ERROR_INVALID_VALUE, get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0));
}

TEST_F(PointerTest, BufferIdsDifferBetweenAllocations) {
  const DeviceMemory first(16);
  const DeviceMemory second(16);
  unsigned long long id_first = 0;
  unsigned long long id_second = 0;
  CU_OK(get(&id_first, CU_POINTER_ATTRIBUTE_BUFFER_ID, first));
  CU_OK(get(&id_second, CU_POINTER_ATTRIBUTE_BUFFER_ID, second));
  EXPECT_NE(id_first, id_second);
}

TEST_F(PointerTest, ManyAttributesAtOnceNeverFailForUnknownAddresses) {
  int local = 0;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  CUcontext owner = reinterpret_cast<CUcontext>(1);
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  CUdeviceptr pointer = 1;
  int ordinal = 9;
  void* data[] = {&owner, &type, &pointer, &ordinal};
  CU_OK(cu().cuPointerGetAttributes(4, which, data, reinterpret_cast<CUdeviceptr>(&local)));
  EXPECT_EQ(nullptr, owner);
  EXPECT_EQ(0, static_cast<int>(type));
  EXPECT_EQ(0u, pointer);
  EXPECT_EQ(-2, ordinal);
  const DeviceMemory memory(16);
  CU_OK(cu().cuPointerGetAttributes(4, which, data, memory));
  EXPECT_EQ(context, owner);
  EXPECT_EQ(CU_MEMORYTYPE_DEVICE, type);
  EXPECT_EQ(static_cast<CUdeviceptr>(memory), pointer);
  EXPECT_EQ(device, ordinal);
}

TEST_F(PointerTest, ArgumentsAreChecked) {
  const DeviceMemory memory(16);
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT};
  CUcontext owner = nullptr;
  void* data[] = {&owner};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuPointerGetAttributes(0, which, data, memory));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuPointerGetAttributes(1, nullptr, data, memory));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuPointerGetAttributes(1, which, nullptr, memory));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  CU_IS(CUDA_ERROR_INVALID_VALUE, get(&owner, static_cast<CUpointer_attribute>(99), memory));
}

TEST_F(PointerTest, SyncMemopsCanBeSetAndRead) {
  const DeviceMemory memory(16);
  int one = 1;
  int read = 0;
  CU_OK(cu().cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  CU_OK(get(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  EXPECT_EQ(1, read & 0xff);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0x1234));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
}

TEST_F(PointerTest, WhoAsksForTokensMakesTheMemorySynchronous) {
  const DeviceMemory memory(16);
  unsigned read = 9;
  CU_OK(get(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  EXPECT_EQ(0u, read & 0xff);
  unsigned long long tokens[2] = {};
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_P2P_TOKENS};
  void* data[] = {tokens};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuPointerGetAttributes(1, which, data, memory));
  CU_OK(get(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, memory));
  CU_OK(get(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  EXPECT_EQ(1u, read & 0xff);
}

TEST_F(PointerTest, ManagedMemoryIsSynchronousFromTheBeginning) {
  CUdeviceptr managed = 0;
  CU_OK(cu().cuMemAllocManaged(&managed, 16, CU_MEM_ATTACH_GLOBAL));
  unsigned read = 9;
  CU_OK(get(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, managed));
  EXPECT_EQ(1u, read & 0xff);
  CU_OK(cu().cuMemFree_v2(managed));
}

TEST_F(PointerTest, NothingAppliesToAnUnknownAddress) {
  unsigned char value[8];
  void* data[] = {value};
  CUdeviceptr local = reinterpret_cast<CUdeviceptr>(value);
  for (CUpointer_attribute which :
       {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE}) {
    value[0] = 9;
    CU_OK(cu().cuPointerGetAttributes(1, &which, data, local));
    EXPECT_EQ(0, value[0]) << which;
  }
}

TEST_F(PointerTest, SyncMemopsCanBeTakenBack) {
  const DeviceMemory memory(16);
  CUdeviceptr managed = 0;
  CU_OK(cu().cuMemAllocManaged(&managed, 16, CU_MEM_ATTACH_GLOBAL));
  for (const CUdeviceptr address : {static_cast<CUdeviceptr>(memory), managed}) {
    for (const int wanted : {1, 0}) {
      int read = 2;
      CU_OK(cu().cuPointerSetAttribute(&wanted, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
      CU_OK(get(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
      EXPECT_EQ(wanted, read & 0xff);
    }
  }
  CU_OK(cu().cuMemFree_v2(managed));
}

}  // namespace
}  // namespace flyt::conformance
