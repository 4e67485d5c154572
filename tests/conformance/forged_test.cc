// Handles that were never given out or are dead. NVIDIA's driver dereferences them and dies, so it
// is not asked; ours must refuse them at the call.
#include "tests/conformance/fixture.h"
#include "tests/conformance/graphs.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

using ForgedTest = ContextTest;

template <class Handle>
Handle wild() {
  return reinterpret_cast<Handle>(std::uintptr_t{0x77777770});
}

TEST_F(ForgedTest, WildStreamsAreInvalidHandles) {
  const DeviceMemory memory(16);
  const Event event;
  const auto stream = wild<CUstream>();
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamQuery(stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamSynchronize(stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamDestroy_v2(stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuMemsetD8Async(memory, 0, 4, stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventRecord(event, stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamWaitEvent(stream, event, 0));
}

TEST_F(ForgedTest, WildEventsAreInvalidHandles) {
  const Stream stream;
  const auto event = wild<CUevent>();
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventQuery(event));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventSynchronize(event));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventRecord(event, stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamWaitEvent(stream, event, 0));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventDestroy_v2(event));
}

TEST_F(ForgedTest, WildFunctionsAndModulesAreInvalidHandles) {
  CUfunction function = nullptr;
  int value = 0;
  CU_IS(CUDA_ERROR_INVALID_HANDLE, launch(wild<CUfunction>(), 1, 1, nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE,
        cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, wild<CUfunction>()));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuModuleGetFunction(&function, wild<CUmodule>(), "x"));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuModuleUnload(wild<CUmodule>()));
}

TEST_F(ForgedTest, DestroyedStreamsAreRefused) {
  CUstream stream = nullptr;
  CU_OK(cu().cuStreamCreate(&stream, 0));
  CU_OK(cu().cuStreamDestroy_v2(stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamQuery(stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamDestroy_v2(stream));
}

TEST_F(ForgedTest, DestroyedEventsAreRefused) {
  CUevent event = nullptr;
  CU_OK(cu().cuEventCreate(&event, 0));
  CU_OK(cu().cuEventDestroy_v2(event));
  EXPECT_NE(CUDA_SUCCESS, cu().cuEventQuery(event));
  EXPECT_NE(CUDA_SUCCESS, cu().cuEventSynchronize(event));
  EXPECT_NE(CUDA_SUCCESS, cu().cuEventDestroy_v2(event));
}

TEST_F(ForgedTest, FunctionsOfAnUnloadedModuleAreRefused) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, kBasicPtx));
  CU_OK(cu().cuModuleGetFunction(&function, module, "empty"));
  CU_OK(cu().cuModuleUnload(module));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, launch(function, 1, 1, nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuModuleUnload(module));
}

TEST_F(ForgedTest, AHandleOfOneKindIsNoHandleOfAnother) {
  const Stream stream;
  const Event event;
  const auto stream_as_event = reinterpret_cast<CUevent>(static_cast<CUstream>(stream));
  const auto event_as_stream = reinterpret_cast<CUstream>(static_cast<CUevent>(event));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventQuery(stream_as_event));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamQuery(event_as_stream));
}

TEST_F(ForgedTest, ContextsOfNobodyAreRefused) {
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxPushCurrent_v2(wild<CUcontext>()));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxSetCurrent(wild<CUcontext>()));
}

TEST_F(ForgedTest, NullWhereNvidiaWritesWithoutLookingIsRefused) {
  void* found = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetErrorName(CUDA_SUCCESS, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetErrorString(CUDA_SUCCESS, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetLoadingMode(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetProcAddress_v2(nullptr, &found, 12000, 0, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetProcAddress_v2("cuInit", nullptr, 12000, 0, nullptr));
}

TEST_F(ForgedTest, NoResourcesMakeNoDescription) {
  CUdevResource all{};
  CU_OK(cu().cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
  CUdevResourceDesc description = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevResourceGenerateDesc(&description, &all, 0));
}

TEST_F(ForgedTest, AnAttachmentOfNoKindIsRefused) {
  CUdeviceptr memory = 0;
  CU_OK(cu().cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_HOST));
  const Stream stream;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamAttachMemAsync(stream, memory, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamAttachMemAsync(stream, memory, 0, 7));
  CU_OK(cu().cuMemFree_v2(memory));
}

TEST_F(ForgedTest, ASurfaceWithoutAPlaceForItsNameIsRefused) {
  CUDA_ARRAY3D_DESCRIPTOR described{};
  described.Width = 4;
  described.Format = CU_AD_FORMAT_FLOAT;
  described.NumChannels = 1;
  described.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  CUDA_RESOURCE_DESC resource{};
  CU_OK(cu().cuArray3DCreate_v2(&resource.res.array.hArray, &described));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuSurfObjectCreate(nullptr, &resource));
  CU_OK(cu().cuArrayDestroy(resource.res.array.hArray));
}

// Graphs, and what was instantiated of them, in a context that ends.
class DeadGraphAlone : public DriverTest {
 protected:
  // In the current context.
  void make() {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUgraphNode node = nullptr;
    CU_OK(cu().cuModuleLoadData(&module, kBasicPtx));
    CU_OK(cu().cuModuleGetFunction(&function, module, "empty"));
    CU_OK(cu().cuGraphCreate(&graph_, 0));
    const CUDA_KERNEL_NODE_PARAMS kernel = kernel_params(function, nullptr);
    CU_OK(cu().cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &kernel));
    CU_OK(cu().cuGraphInstantiateWithFlags(&used_, graph_, 0));
    CU_OK(cu().cuGraphInstantiateWithFlags(&idle_, graph_, 0));
    CUstream stream = nullptr;
    CU_OK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU_OK(cu().cuGraphLaunch(used_, stream));
    CU_OK(cu().cuStreamSynchronize(stream));
  }
  void destroy_all() {
    CU_OK(cu().cuGraphExecDestroy(used_));
    CU_OK(cu().cuGraphExecDestroy(idle_));
    CU_OK(cu().cuGraphDestroy(graph_));
  }

  CUgraph graph_ = nullptr;
  CUgraphExec used_ = nullptr;
  CUgraphExec idle_ = nullptr;
};

TEST_F(DeadGraphAlone, ExecutableGraphsMayBeDestroyedAfterTheirContext) {
  CUcontext own = nullptr;
  CUcontext primary = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&own, 0, device));
  ASSERT_NO_FATAL_FAILURE(make());
  CU_OK(cu().cuCtxDestroy_v2(own));
  CU_OK(cu().cuDevicePrimaryCtxRetain(&primary, device));
  CU_OK(cu().cuCtxSetCurrent(primary));
  const Stream stream;
  CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu().cuGraphLaunch(used_, stream));
  CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu().cuGraphLaunch(idle_, stream));
  ASSERT_NO_FATAL_FAILURE(destroy_all());
  CU_OK(cu().cuCtxSynchronize());
}

TEST_F(DeadGraphAlone, ExecutableGraphsMayBeDestroyedAfterAReset) {
  CUcontext primary = nullptr;
  for (int i = 0; i < 2; ++i) {
    CU_OK(cu().cuDevicePrimaryCtxRetain(&primary, device));
    CU_OK(cu().cuCtxSetCurrent(primary));
    // Of the context before.
    if (i != 0) {
      {
        const Stream stream;
        CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu().cuGraphLaunch(used_, stream));
        CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu().cuGraphLaunch(idle_, stream));
      }
      ASSERT_NO_FATAL_FAILURE(destroy_all());
    }
    ASSERT_NO_FATAL_FAILURE(make());
    CU_OK(cu().cuDevicePrimaryCtxReset_v2(device));
  }
  ASSERT_NO_FATAL_FAILURE(destroy_all());
}

TEST_F(ForgedTest, ANameOfNoLengthIsRefused) {
  char name[4] = "abc";
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetName(name, 0, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetName(name, -1, device));
}

}  // namespace
}  // namespace flyt::conformance
