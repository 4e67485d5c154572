// What a thread without a current context may call: most objects know the context they belong to.
#include <array>

#include "tests/conformance/fixture.h"
#include "tests/conformance/images.h"
#include "tests/conformance/kernels.h"
#include "tests/conformance/texture_kernels.h"

namespace flyt::conformance {
namespace {

constexpr CUresult kNoContext = CUDA_ERROR_INVALID_CONTEXT;

// The thread has no current context while one is alive.
class NoContext {
 public:
  NoContext() {
    const Unrecorded quiet;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxPopCurrent_v2(&context_));
  }
  ~NoContext() {
    const Unrecorded quiet;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxPushCurrent_v2(context_));
  }
  NoContext(const NoContext&) = delete;
  NoContext& operator=(const NoContext&) = delete;

 private:
  CUcontext context_ = nullptr;
};

using NoContextTest = ContextTest;

TEST_F(NoContextTest, MemoryIsFreedButNotUsed) {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CUdeviceptr managed = 0;
  CUdeviceptr pooled = 0;
  CU_OK(cu().cuMemAlloc_v2(&first, 1000));
  CU_OK(cu().cuMemAlloc_v2(&second, 4 << 20));
  CU_OK(cu().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  const Stream stream;
  CU_OK(cu().cuMemAllocAsync(&pooled, 4096, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  const NoContext none;
  std::array<std::uint8_t, 16> bytes{};
  CUdeviceptr base = 0;
  std::size_t size = 0;
  unsigned value = 0;
  CU_IS(kNoContext, cu().cuMemGetInfo_v2(&size, &size));
  CU_IS(kNoContext, cu().cuMemGetAddressRange_v2(&base, &size, first));
  CU_IS(CUDA_SUCCESS, cu().cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, first));
  CU_IS(kNoContext, cu().cuMemcpyHtoD_v2(first, bytes.data(), 16));
  CU_IS(kNoContext, cu().cuMemcpyDtoH_v2(bytes.data(), first, 16));
  CU_IS(kNoContext, cu().cuMemcpyDtoD_v2(second, first, 16));
  CU_IS(kNoContext, cu().cuMemcpy(second, first, 16));
  CU_IS(kNoContext, cu().cuMemsetD8_v2(first, 1, 16));
  CU_IS(kNoContext, cu().cuMemsetD16_v2(first, 1, 8));
  CU_IS(kNoContext, cu().cuMemsetD32_v2(first, 1, 4));
  CU_IS(kNoContext, cu().cuMemsetD2D8_v2(first, 16, 1, 16, 1));
  CU_IS(kNoContext, cu().cuMemAlloc_v2(&base, 16));
  CU_IS(kNoContext, cu().cuMemAllocPitch_v2(&base, &size, 16, 16, 4));
  CU_IS(kNoContext, cu().cuMemAllocManaged(&base, 4096, CU_MEM_ATTACH_GLOBAL));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyHtoDAsync_v2(first, bytes.data(), 16, stream));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyAsync(second, first, 16, stream));
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD8Async(first, 1, 16, stream));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
  CU_IS(CUDA_SUCCESS, cu().cuMemFree_v2(0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree_v2(0x1234));
  CU_IS(CUDA_SUCCESS, cu().cuMemFree_v2(first));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree_v2(first));
  CU_IS(CUDA_SUCCESS, cu().cuMemFree_v2(second));
  CU_IS(CUDA_SUCCESS, cu().cuMemFree_v2(managed));
  CU_IS(CUDA_SUCCESS, cu().cuMemFree_v2(pooled));
}

TEST_F(NoContextTest, ManagedMemoryIsUsedThroughStreams) {
  CUdeviceptr managed = 0;
  CU_OK(cu().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  const Stream stream;
  {
    const NoContext none;
    int value = 0;
    CU_IS(kNoContext, cu().cuMemAdvise(managed, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
    CU_IS(kNoContext, cu().cuMemAdvise_v2(managed, 4096, CU_MEM_ADVISE_UNSET_READ_MOSTLY,
                                          {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}));
    CU_IS(kNoContext, cu().cuMemRangeGetAttribute(
                          &value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, 4096));
    CU_IS(CUDA_SUCCESS, cu().cuMemPrefetchAsync(managed, 4096, device, stream));
    CU_IS(kNoContext, cu().cuMemPrefetchAsync(managed, 4096, device, nullptr));
    CU_IS(CUDA_SUCCESS, cu().cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE));
    CU_IS(kNoContext, cu().cuStreamAttachMemAsync(nullptr, managed, 0, CU_MEM_ATTACH_GLOBAL));
    CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
  }
  CU_IS(CUDA_SUCCESS, cu().cuMemFree_v2(managed));
}

TEST_F(NoContextTest, PinnedMemoryIsFreed) {
  void* pinned = nullptr;
  CU_OK(cu().cuMemHostAlloc(&pinned, 4096, 0));
  alignas(4096) static std::array<std::uint8_t, 8192> pages;
  CU_OK(cu().cuMemHostRegister_v2(pages.data(), 4096, 0));
  const NoContext none;
  CUdeviceptr address = 0;
  void* fresh = nullptr;
  unsigned flags = 0;
  CU_IS(kNoContext, cu().cuMemHostGetDevicePointer_v2(&address, pinned, 0));
  CU_IS(kNoContext, cu().cuMemHostGetFlags(&flags, pinned));
  CU_IS(kNoContext, cu().cuMemHostAlloc(&fresh, 16, 0));
  CU_IS(kNoContext, cu().cuMemAllocHost_v2(&fresh, 16));
  CU_IS(kNoContext, cu().cuMemHostRegister_v2(pages.data() + 4096, 4096, 0));
  CU_IS(CUDA_SUCCESS, cu().cuMemFreeHost(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeHost(pages.data()));
  CU_IS(CUDA_SUCCESS, cu().cuMemFreeHost(pinned));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeHost(pinned));
  CU_IS(CUDA_SUCCESS, cu().cuMemHostUnregister(pages.data()));
  CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu().cuMemHostUnregister(pages.data()));
}

TEST_F(NoContextTest, EventsAreUsedAndDestroyed) {
  const Stream stream;
  CUevent first = nullptr;
  CUevent second = nullptr;
  CU_OK(cu().cuEventCreate(&first, 0));
  CU_OK(cu().cuEventCreate(&second, 0));
  const NoContext none;
  CUevent fresh = nullptr;
  float milliseconds = 0;
  CU_IS(kNoContext, cu().cuEventCreate(&fresh, 0));
  CU_IS(kNoContext, cu().cuEventRecord(first, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuEventRecord(first, stream));
  CU_IS(CUDA_SUCCESS, cu().cuEventRecordWithFlags(second, stream, 0));
  CU_IS(CUDA_SUCCESS, cu().cuStreamWaitEvent(stream, first, 0));
  CU_IS(kNoContext, cu().cuStreamWaitEvent(nullptr, first, 0));
  CU_IS(CUDA_SUCCESS, cu().cuEventSynchronize(second));
  CU_IS(CUDA_SUCCESS, cu().cuEventQuery(second));
  CU_IS(CUDA_SUCCESS, cu().cuEventElapsedTime(&milliseconds, first, second));
  CU_IS(CUDA_SUCCESS, cu().cuEventDestroy_v2(first));
  CU_IS(CUDA_SUCCESS, cu().cuEventDestroy_v2(second));
}

TEST_F(NoContextTest, StreamsAreUsedAndDestroyed) {
  CUstream stream = nullptr;
  CUstream other = nullptr;
  CU_OK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU_OK(cu().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  const DeviceMemory memory(16);
  const NoContext none;
  CUstream fresh = nullptr;
  int value = 0;
  unsigned flags = 0;
  unsigned long long id = 0;
  CUcontext home = nullptr;
  CUstreamCaptureStatus status{};
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CU_IS(kNoContext, cu().cuStreamCreate(&fresh, 0));
  CU_IS(kNoContext, cu().cuStreamCreateWithPriority(&fresh, 0, 0));
  CU_IS(CUDA_SUCCESS, cu().cuStreamGetPriority(stream, &value));
  CU_IS(CUDA_SUCCESS, cu().cuStreamGetFlags(stream, &flags));
  CU_IS(CUDA_SUCCESS, cu().cuStreamGetId(stream, &id));
  CU_IS(CUDA_SUCCESS, cu().cuStreamGetCtx(stream, &home));
  EXPECT_EQ(context, home);
  CU_IS(CUDA_SUCCESS, cu().cuStreamIsCapturing(stream, &status));
  CU_IS(CUDA_SUCCESS, cu().cuThreadExchangeStreamCaptureMode(&mode));
  CU_IS(CUDA_SUCCESS, cu().cuThreadExchangeStreamCaptureMode(&mode));
  CU_IS(CUDA_SUCCESS, cu().cuStreamCopyAttributes(stream, other));
  CU_IS(CUDA_SUCCESS, cu().cuStreamWriteValue32_v2(stream, memory, 3, 0));
  CU_IS(kNoContext, cu().cuStreamWriteValue32_v2(nullptr, memory, 3, 0));
  CU_IS(kNoContext, cu().cuStreamGetPriority(nullptr, &value));
  CU_IS(kNoContext, cu().cuStreamGetFlags(nullptr, &flags));
  CU_IS(kNoContext, cu().cuStreamGetId(nullptr, &id));
  CU_IS(kNoContext, cu().cuStreamGetCtx(nullptr, &home));
  CU_IS(kNoContext, cu().cuStreamIsCapturing(nullptr, &status));
  CU_IS(kNoContext, cu().cuStreamQuery(nullptr));
  CU_IS(kNoContext, cu().cuStreamSynchronize(nullptr));
  CU_IS(kNoContext, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
  CU_IS(kNoContext, cu().cuLaunchHostFunc(
                        nullptr, [](void*) {}, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuLaunchHostFunc(
                          stream, [](void*) {}, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(other));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
  CU_IS(CUDA_SUCCESS, cu().cuStreamDestroy_v2(stream));
  CU_IS(CUDA_SUCCESS, cu().cuStreamDestroy_v2(other));
}

TEST_F(NoContextTest, CodeIsAskedAndUnloaded) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, kBasicPtx));
  CU_OK(cu().cuModuleGetFunction(&function, module, "empty"));
  const Stream stream;
  const NoContext none;
  CUmodule fresh = nullptr;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  const char* name = nullptr;
  CUmodule home = nullptr;
  CUfunction found = nullptr;
  int value = 0;
  int other = 0;
  CUfunctionLoadingState state{};
  CU_IS(kNoContext, cu().cuModuleLoadData(&fresh, kBasicPtx));
  CU_IS(kNoContext, cu().cuModuleLoadDataEx(&fresh, kBasicPtx, 0, nullptr, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuModuleGetFunction(&found, module, "add_one"));
  CU_IS(CUDA_SUCCESS, cu().cuModuleGetGlobal_v2(&address, &bytes, module, "counter"));
  CU_IS(CUDA_SUCCESS, cu().cuFuncGetModule(&home, function));
  CU_IS(CUDA_SUCCESS, cu().cuFuncGetName(&name, function));
  CU_IS(CUDA_SUCCESS, cu().cuFuncGetParamInfo(found, 0, &bytes, &bytes));
  CU_IS(CUDA_SUCCESS, cu().cuFuncIsLoaded(&state, function));
  CU_IS(CUDA_SUCCESS, cu().cuFuncLoad(function));
  CU_IS(CUDA_SUCCESS, cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  CU_IS(CUDA_SUCCESS,
        cu().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
  CU_IS(CUDA_SUCCESS, cu().cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1));
  CU_IS(CUDA_SUCCESS,
        cu().cuFuncSetSharedMemConfig(function, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  CU_IS(kNoContext, cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 64, 0));
  CU_IS(kNoContext,
        cu().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, function, 64, 0, 0));
  CU_IS(kNoContext, cu().cuOccupancyMaxPotentialBlockSize(&value, &other, function, nullptr, 0, 0));
  CU_IS(kNoContext, cu().cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 1, 64));
  void* nothing[] = {nullptr};
  CU_IS(CUDA_SUCCESS, cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nothing, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
  CU_IS(kNoContext, cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nothing, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuModuleUnload(module));
}

// The stream of a configuration brings a context, its function does not.
TEST_F(NoContextTest, ClustersAreCountedWhereAStreamIs) {
  if (attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0) GTEST_SKIP() << "no clusters";
  const Module module(kBasicPtx);
  const CUfunction function = module.function("empty");
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  int count = 0;
  int size = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuOccupancyMaxActiveClusters(&count, nullptr, &config));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuOccupancyMaxPotentialClusterSize(&size, nullptr, &config));
  const Stream stream;
  const NoContext none;
  CU_IS(kNoContext, cu().cuOccupancyMaxActiveClusters(&count, function, &config));
  CU_IS(kNoContext, cu().cuOccupancyMaxPotentialClusterSize(&size, function, &config));
  config.hStream = stream;
  CU_IS(CUDA_SUCCESS, cu().cuOccupancyMaxActiveClusters(&count, function, &config));
  EXPECT_EQ(0, count);  // Neither the function nor the configuration says of what size.
  CU_IS(CUDA_SUCCESS, cu().cuOccupancyMaxPotentialClusterSize(&size, function, &config));
  EXPECT_GT(size, 0);
}

TEST_F(NoContextTest, OldLaunchesNeedOne) {
  if (!cu().cuLaunchGrid.present()) GTEST_SKIP() << "a newer driver";
  const Stream stream;
  const Module module(kBasicPtx);
  const CUfunction function = module.function("empty");
  const NoContext none;
  CU_IS(kNoContext, cu().cuFuncSetBlockShape(function, 32, 1, 1));
  CU_IS(kNoContext, cu().cuFuncSetSharedSize(function, 0));
  CU_IS(kNoContext, cu().cuParamSetSize(function, 0));
  CU_IS(kNoContext, cu().cuLaunch(function));
  CU_IS(kNoContext, cu().cuLaunchGrid(function, 1, 1));
  CU_IS(kNoContext, cu().cuLaunchGridAsync(function, 1, 1, stream));
}

TEST_F(NoContextTest, ALinkBeginsInOne) {
  const NoContext none;
  CUlinkState link = nullptr;
  CU_IS(kNoContext, cu().cuLinkCreate_v2(0, nullptr, nullptr, &link));
}

TEST_F(NoContextTest, ALinkGoesOnWithoutOne) {
  CUlinkState link = nullptr;
  CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &link));
  const NoContext none;
  void* image = nullptr;
  std::size_t bytes = 0;
  std::string text = kBasicPtx;
  CU_IS(CUDA_SUCCESS, cu().cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1,
                                            "basic", 0, nullptr, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuLinkComplete(link, &image, &bytes));
  CU_IS(CUDA_SUCCESS, cu().cuLinkDestroy(link));
}

TEST_F(NoContextTest, ArraysAreDescribedAndDestroyed) {
  CUDA_ARRAY_DESCRIPTOR shape{
      .Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUDA_ARRAY3D_DESCRIPTOR deep{.Width = 16,
                               .Height = 16,
                               .Depth = 0,
                               .Format = CU_AD_FORMAT_FLOAT,
                               .NumChannels = 1,
                               .Flags = 0};
  CUarray array = nullptr;
  CUmipmappedArray levels = nullptr;
  CU_OK(cu().cuArrayCreate_v2(&array, &shape));
  CU_OK(cu().cuMipmappedArrayCreate(&levels, &deep, 2));
  const DeviceMemory memory(4096);
  const NoContext none;
  CUarray fresh = nullptr;
  CUmipmappedArray fresh_levels = nullptr;
  CUarray level = nullptr;
  std::array<float, 16> row{};
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  CU_IS(kNoContext, cu().cuArrayCreate_v2(&fresh, &shape));
  CU_IS(kNoContext, cu().cuArray3DCreate_v2(&fresh, &deep));
  CU_IS(kNoContext, cu().cuMipmappedArrayCreate(&fresh_levels, &deep, 2));
  CU_IS(CUDA_SUCCESS, cu().cuArrayGetDescriptor_v2(&shape, array));
  CU_IS(CUDA_SUCCESS, cu().cuArray3DGetDescriptor_v2(&deep, array));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArrayGetMemoryRequirements(&needs, array, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArrayGetPlane(&level, array, 0));
  CU_IS(kNoContext, cu().cuMemcpyHtoA_v2(array, 0, row.data(), sizeof row));
  CU_IS(kNoContext, cu().cuMemcpyAtoH_v2(row.data(), array, 0, sizeof row));
  CU_IS(kNoContext, cu().cuMemcpyDtoA_v2(array, 0, memory, sizeof row));
  CU_IS(kNoContext, cu().cuMemcpyAtoD_v2(memory, array, 0, sizeof row));
  CU_IS(kNoContext, cu().cuMemcpyAtoA_v2(array, 0, array, 64, 64));
  CUDA_MEMCPY2D plane{};
  plane.srcMemoryType = CU_MEMORYTYPE_HOST;
  plane.srcHost = row.data();
  plane.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  plane.dstArray = array;
  plane.WidthInBytes = sizeof row;
  plane.Height = 1;
  CU_IS(kNoContext, cu().cuMemcpy2D_v2(&plane));
  CU_IS(CUDA_SUCCESS, cu().cuMipmappedArrayGetLevel(&level, levels, 1));
  CU_IS(CUDA_SUCCESS, cu().cuArrayGetDescriptor_v2(&shape, level));
  CU_IS(CUDA_SUCCESS, cu().cuMipmappedArrayDestroy(levels));
  CU_IS(CUDA_SUCCESS, cu().cuArrayDestroy(array));
}

TEST_F(NoContextTest, TexturesAndSurfacesNeedOne) {
  const Array array(16, 16, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC description{};
  CUDA_RESOURCE_VIEW_DESC view{};
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  CU_OK(cu().cuTexObjectCreate(&texture, &resource, &description, nullptr));
  CU_OK(cu().cuSurfObjectCreate(&surface, &resource));
  {
    const NoContext none;
    CUtexObject fresh = 0;
    CU_IS(kNoContext, cu().cuTexObjectCreate(&fresh, &resource, &description, nullptr));
    CU_IS(kNoContext, cu().cuSurfObjectCreate(&fresh, &resource));
    CU_IS(kNoContext, cu().cuTexObjectGetResourceDesc(&resource, texture));
    CU_IS(kNoContext, cu().cuTexObjectGetTextureDesc(&description, texture));
    CU_IS(kNoContext, cu().cuTexObjectGetResourceViewDesc(&view, texture));
    CU_IS(kNoContext, cu().cuSurfObjectGetResourceDesc(&resource, surface));
    CU_IS(kNoContext, cu().cuTexObjectDestroy(texture));
    CU_IS(kNoContext, cu().cuSurfObjectDestroy(surface));
  }
  CU_IS(CUDA_SUCCESS, cu().cuTexObjectDestroy(texture));
  CU_IS(CUDA_SUCCESS, cu().cuSurfObjectDestroy(surface));
}

TEST_F(NoContextTest, ReferencesAreSetAndAsked) {
  const Module module(
      image_kernel("tex.1d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [picture, {%f0}];", false,
                   ".visible .global .texref picture;\n.visible .global .surfref canvas;\n"));
  const Array array(16, 0, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST);
  const DeviceMemory memory(4096);
  const NoContext none;
  CUtexref texture = nullptr;
  CUsurfref surface = nullptr;
  CUtexref fresh = nullptr;
  CUarray told = nullptr;
  CUaddress_mode mode{};
  CUfilter_mode filter{};
  CUarray_format format{};
  CUdeviceptr address = 0;
  std::size_t offset = 0;
  float value = 0;
  float border[4] = {};
  int number = 0;
  unsigned flags = 0;
  CU_IS(CUDA_SUCCESS, cu().cuModuleGetTexRef(&texture, module, "picture"));
  CU_IS(CUDA_SUCCESS, cu().cuModuleGetSurfRef(&surface, module, "canvas"));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetArray(texture, array, CU_TRSA_OVERRIDE_FORMAT));
  CU_IS(CUDA_SUCCESS, cu().cuSurfRefSetArray(surface, array, 0));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetArray(&told, texture));
  CU_IS(CUDA_SUCCESS, cu().cuSurfRefGetArray(&told, surface));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetFormat(texture, CU_AD_FORMAT_FLOAT, 1));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetAddressMode(texture, 0, CU_TR_ADDRESS_MODE_CLAMP));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetFilterMode(texture, CU_TR_FILTER_MODE_POINT));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetMipmapFilterMode(texture, CU_TR_FILTER_MODE_POINT));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetMipmapLevelBias(texture, 0));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetMipmapLevelClamp(texture, 0, 1));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetMaxAnisotropy(texture, 1));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetBorderColor(texture, border));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetFlags(texture, 0));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetAddressMode(&mode, texture, 0));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetFilterMode(&filter, texture));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetFormat(&format, &number, texture));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetMipmapFilterMode(&filter, texture));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetMipmapLevelBias(&value, texture));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetMipmapLevelClamp(&value, &value, texture));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetMaxAnisotropy(&number, texture));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetBorderColor(border, texture));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetFlags(&flags, texture));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetAddress_v2(&offset, texture, memory, 4096));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetAddress_v2(&address, texture));
  CU_IS(kNoContext, cu().cuTexRefCreate(&fresh));
  if (fresh != nullptr) {
    CU_IS(CUDA_SUCCESS, cu().cuTexRefDestroy(fresh));
  }
}

TEST_F(NoContextTest, WhatProcessesShareNeedsOne) {
  CUevent event = nullptr;
  CU_OK(cu().cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  const NoContext none;
  CUipcEventHandle of_event{};
  CUevent opened = nullptr;
  CU_IS(kNoContext, cu().cuIpcGetEventHandle(&of_event, event));
  CU_IS(kNoContext, cu().cuIpcOpenEventHandle(&opened, of_event));
  CU_IS(CUDA_SUCCESS, cu().cuEventDestroy_v2(event));
}

TEST_F(NoContextTest, PoolsAreUsedThroughStreams) {
  const Stream stream;
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuDeviceGetDefaultMemPool(&pool, device));
  const NoContext none;
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CU_IS(kNoContext, cu().cuMemAllocAsync(&first, 4096, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuMemAllocAsync(&first, 4096, stream));
  CU_IS(CUDA_SUCCESS, cu().cuMemAllocFromPoolAsync(&second, 4096, pool, stream));
  CU_IS(kNoContext, cu().cuMemFreeAsync(first, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuMemFreeAsync(first, stream));
  CU_IS(CUDA_SUCCESS, cu().cuMemFreeAsync(second, stream));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
}

TEST_F(NoContextTest, GraphsAreMadeAndLaunchedButNotInstantiated) {
  const Stream stream;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  {
    const NoContext none;
    CUgraphNode node = nullptr;
    CU_IS(CUDA_SUCCESS, cu().cuGraphCreate(&graph, 0));
    CU_IS(CUDA_SUCCESS, cu().cuGraphAddEmptyNode(&node, graph, nullptr, 0));
    CU_IS(kNoContext, cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
  }
  CU_OK(cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
  const NoContext none;
  CU_IS(CUDA_SUCCESS, cu().cuGraphUpload(exec, stream));
  CU_IS(CUDA_SUCCESS, cu().cuGraphLaunch(exec, stream));
  CU_IS(kNoContext, cu().cuGraphUpload(exec, nullptr));
  CU_IS(kNoContext, cu().cuGraphLaunch(exec, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
  CU_IS(CUDA_SUCCESS, cu().cuGraphExecDestroy(exec));
  CU_IS(CUDA_SUCCESS, cu().cuGraphDestroy(graph));
}

TEST_F(NoContextTest, TheRestNeedsOne) {
  const DeviceMemory memory(64);
  const NoContext none;
  CU_IS(kNoContext, cu().cuCtxResetPersistingL2Cache());
  CU_IS(kNoContext, cu().cuProfilerStart());
  CU_IS(kNoContext, cu().cuProfilerStop());
  CU_IS(kNoContext, cu().cuCtxEnablePeerAccess(context, 0));
  CU_IS(kNoContext, cu().cuCtxDisablePeerAccess(context));
  CU_IS(kNoContext, cu().cuMemcpyPeer(memory, context, memory + 32, context, 16));
  CU_IS(kNoContext, cu().cuMemcpyPeerAsync(memory, context, memory + 32, context, 16, nullptr));
  CU_IS(kNoContext,
        cu().cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                        CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
}

// Something of every kind, all of it of the context that is current when it is made.
class Belongings {
 public:
  void make() {
    CUDA_ARRAY_DESCRIPTOR shape{
        .Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR deep{.Width = 16,
                                 .Height = 16,
                                 .Depth = 0,
                                 .Format = CU_AD_FORMAT_FLOAT,
                                 .NumChannels = 1,
                                 .Flags = 0};
    CU_OK(cu().cuMemAlloc_v2(&memory_, 1000));
    CU_OK(cu().cuMemAllocManaged(&managed_, 4096, CU_MEM_ATTACH_GLOBAL));
    CU_OK(cu().cuMemHostAlloc(&pinned_, 4096, 0));
    CU_OK(cu().cuMemHostRegister_v2(registered.data(), registered.size(), 0));
    CU_OK(cu().cuEventCreate(&event_, 0));
    CU_OK(cu().cuEventCreate(&later_, 0));
    CU_OK(cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CU_OK(cu().cuMemAllocAsync(&pooled_, 1000, stream_));
    CU_OK(cu().cuEventRecord(event_, stream_));
    CU_OK(cu().cuEventRecord(later_, stream_));
    CU_OK(cu().cuStreamSynchronize(stream_));
    CU_OK(cu().cuModuleLoadData(&module_, kBasicPtx));
    CU_OK(cu().cuModuleGetFunction(&function_, module_, "add_one"));
    CU_OK(cu().cuArrayCreate_v2(&array_, &shape));
    CU_OK(cu().cuMipmappedArrayCreate(&levels_, &deep, 2));
    CU_OK(cu().cuLinkCreate_v2(0, nullptr, nullptr, &link_));
  }
  // Uses and destroys it: all answers `expected`, but for what a context has no part in: that
  // answers `elsewhere`.
  void use(CUresult expected, CUresult elsewhere) const {
    float milliseconds = 0;
    CUarray level = nullptr;
    CUfunction found = nullptr;
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    const char* name = nullptr;
    int value = 0;
    unsigned flags = 0;
    CUDA_ARRAY_DESCRIPTOR shape{};
    CUfunctionLoadingState state{};
    CU_IS(expected, cu().cuStreamGetFlags(stream_, &flags));
    CU_IS(expected, cu().cuStreamSynchronize(stream_));
    CU_IS(expected, cu().cuEventQuery(event_));
    CU_IS(expected, cu().cuEventElapsedTime(&milliseconds, event_, later_));
    CU_IS(expected, cu().cuEventRecord(event_, stream_));
    CU_IS(expected, cu().cuModuleGetFunction(&found, module_, "empty"));
    CU_IS(expected, cu().cuModuleGetGlobal_v2(&address, &bytes, module_, "counter"));
    CU_IS(expected, cu().cuFuncGetName(&name, function_));
    CU_IS(expected, cu().cuFuncGetParamInfo(function_, 0, &bytes, &bytes));
    CU_IS(expected, cu().cuFuncIsLoaded(&state, function_));
    CU_IS(expected, cu().cuFuncLoad(function_));
    CU_IS(expected, cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function_));
    CU_IS(expected, cu().cuFuncSetCacheConfig(function_, CU_FUNC_CACHE_PREFER_L1));
    CU_IS(expected,
          cu().cuFuncSetSharedMemConfig(function_, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
    CU_IS(CUDA_SUCCESS,
          cu().cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory_));
    CU_IS(expected, cu().cuArrayGetDescriptor_v2(&shape, array_));
    CU_IS(expected, cu().cuMipmappedArrayGetLevel(&level, levels_, 1));
    CU_IS(CUDA_SUCCESS, cu().cuLinkDestroy(link_));
    CU_IS(expected, cu().cuMipmappedArrayDestroy(levels_));
    CU_IS(expected, cu().cuArrayDestroy(array_));
    CU_IS(elsewhere, cu().cuMemFree_v2(0));
    CU_IS(elsewhere, cu().cuMemFree_v2(pooled_));
    CU_IS(expected, cu().cuMemFree_v2(memory_));
    CU_IS(expected, cu().cuMemFree_v2(managed_));
    CU_IS(elsewhere, cu().cuMemFreeHost(nullptr));
    CU_IS(expected, cu().cuMemFreeHost(pinned_));
    CU_IS(expected, cu().cuMemHostUnregister(registered.data()));
    CU_IS(expected, cu().cuEventDestroy_v2(event_));
    CU_IS(expected, cu().cuModuleUnload(module_));
    CU_IS(expected, cu().cuStreamDestroy_v2(stream_));
  }
  // Breaks the current context.
  static void fault() {
    const Module module(kFaultPtx);
    CU_OK(cu().cuLaunchKernel(module.function("wild_store"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                              nullptr));
    CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
  }
  CUfunction function() const { return function_; }

 private:
  alignas(4096) static inline std::array<std::uint8_t, 4096> registered;

  CUdeviceptr memory_ = 0;
  CUdeviceptr managed_ = 0;
  CUdeviceptr pooled_ = 0;
  void* pinned_ = nullptr;
  CUevent event_ = nullptr;
  CUevent later_ = nullptr;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUarray array_ = nullptr;
  CUmipmappedArray levels_ = nullptr;
  CUlinkState link_ = nullptr;
};

class BelongingsAlone : public ContextTest {};

TEST_F(BelongingsAlone, AreUsedWithoutAContext) {
  Belongings things;
  things.make();
  const NoContext none;
  things.use(CUDA_SUCCESS, CUDA_SUCCESS);
}

TEST_F(BelongingsAlone, AnswerTheErrorOfTheCurrentContext) {
  Belongings things;
  things.make();
  things.fault();
  things.use(CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(BelongingsAlone, AnswerTheErrorOfTheirContextWhereNoneIsCurrent) {
  Belongings things;
  things.make();
  things.fault();
  const NoContext none;
  things.use(CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_SUCCESS);
}

TEST_F(BelongingsAlone, AreUsedWhileAnotherContextIsCurrent) {
  Belongings things;
  things.make();
  CUcontext other = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&other, 0, device));
  int blocks = 0;
  CU_OK(cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, things.function(), 64, 0));
  EXPECT_LT(0, blocks);
  things.use(CUDA_SUCCESS, CUDA_SUCCESS);
  CU_OK(cu().cuCtxDestroy_v2(other));
}

}  // namespace
}  // namespace flyt::conformance
