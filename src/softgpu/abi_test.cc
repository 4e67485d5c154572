// The library as its users see it: two devices, and kernels that may run for 300 ms.
#include <dlfcn.h>
#include <link.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "cuda/functions.h"
#include "softgpu/link_texts.h"

namespace flyt::softgpu {
namespace {

constexpr char kPtx[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 p, .param .u32 v) {
  .reg .b64 %rd<3>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v];
  cvta.to.global.u64 %rd2, %rd1; st.global.u32 [%rd2], %r1;
  ret;
}
.visible .entry spin() {
  LOOP: bra LOOP;
}
.visible .entry die() { trap; }
)";

// Each launches itself again when it has ended.
constexpr char kAgainPtx[] = R"(
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b64 result) __cudaCDP2GetParameterBufferV2
    (.param .b64 kernel, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12],
     .param .b32 shared);
.extern .func (.param .b32 result) __cudaCDP2LaunchDeviceV2(.param .b64 buffer, .param .b64 stream);
.visible .entry again() {
  .reg .b64 %rd<2>;
  mov.u64 %rd1, again;
  { .param .b64 k; .param .align 4 .b8 g[12]; .param .align 4 .b8 b[12]; .param .b32 s;
    .param .b64 to;
    st.param.b64 [k], %rd1; st.param.b32 [s], 0;
    st.param.b32 [g], 1; st.param.b32 [g+4], 1; st.param.b32 [g+8], 1;
    st.param.b32 [b], 1; st.param.b32 [b+4], 1; st.param.b32 [b+8], 1;
    call (to), __cudaCDP2GetParameterBufferV2, (k, g, b, s); ld.param.b64 %rd1, [to]; }
  { .param .b64 from; .param .b64 s; .param .b32 e;
    st.param.b64 [from], %rd1; st.param.b64 [s], 3;
    call (e), __cudaCDP2LaunchDeviceV2, (from, s); }
  ret;
}
)";

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
// A fault leaves its process no GPU: what is before it in the test is done again in one of its own.
#define FAULTS(call, error) \
  EXPECT_EXIT(std::_Exit((call) == (error) ? 0 : 1), testing::ExitedWithCode(0), "")

class AbiTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    OK(cuInit(0));
    for (int i = 0; i < 2; ++i) OK(cuDevicePrimaryCtxRetain(&contexts_[i], i));
    OK(cuCtxSetCurrent(contexts_[0]));
  }
  void TearDown() override {
    for (int i = 0; i < 2; ++i) cuDevicePrimaryCtxReset_v2(i);
    cuCtxSetCurrent(nullptr);
  }
  CUresult store(CUdeviceptr address, std::uint32_t value, CUstream stream = nullptr) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    if (const CUresult bad = cuModuleLoadData(&module, kPtx); bad != CUDA_SUCCESS) return bad;
    cuModuleGetFunction(&function, module, "store");
    void* parameters[] = {&address, &value};
    const CUresult result =
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    if (result != CUDA_SUCCESS) return result;
    return cuCtxSynchronize();
  }
  CUresult run(const char* name, const char* text = kPtx) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    if (const CUresult bad = cuModuleLoadData(&module, text); bad != CUDA_SUCCESS) return bad;
    cuModuleGetFunction(&function, module, name);
    const CUresult result =
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    if (result != CUDA_SUCCESS) return result;
    return cuCtxSynchronize();
  }
  std::array<CUcontext, 2> contexts_{};
};

TEST_F(AbiTest, AKernelTouchesAnotherDeviceOnlyWithPeerAccess) {
  CUdeviceptr far = 0;
  OK(cuCtxSetCurrent(contexts_[1]));
  OK(cuMemAlloc_v2(&far, 4096));
  OK(cuCtxSetCurrent(contexts_[0]));
  OK(cuCtxEnablePeerAccess(contexts_[1], 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(contexts_[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(store(far, 7), CUDA_SUCCESS);
  std::uint32_t value = 0;
  OK(cuMemcpyDtoH_v2(&value, far, sizeof value));
  EXPECT_EQ(value, 7u);
  OK(cuCtxDisablePeerAccess(contexts_[1]));
  FAULTS(store(far, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(AbiTest, CopiesGoBetweenDevices) {
  CUdeviceptr near = 0;
  CUdeviceptr far = 0;
  OK(cuMemAlloc_v2(&near, 64));
  OK(cuMemsetD8_v2(near, 9, 64));
  OK(cuCtxSetCurrent(contexts_[1]));
  OK(cuMemAlloc_v2(&far, 64));
  OK(cuMemcpyPeer(far, contexts_[1], near, contexts_[0], 64));
  std::array<std::uint8_t, 64> bytes{};
  OK(cuMemcpyDtoH_v2(bytes.data(), far, bytes.size()));
  EXPECT_EQ(bytes[63], 9);
}

TEST_F(AbiTest, ACopyBetweenDevicesWaitsForBothAndIsWaitedFor) {
  constexpr std::size_t kSize = 4 * kMiB;  // Long enough to be overtaken.
  CUdeviceptr near = 0;
  CUdeviceptr far = 0;
  OK(cuMemAlloc_v2(&near, kSize));
  OK(cuCtxSetCurrent(contexts_[1]));
  OK(cuMemAlloc_v2(&far, kSize));
  for (std::uint8_t round = 1; round < 20; ++round) {
    OK(cuCtxSetCurrent(contexts_[0]));
    OK(cuMemsetD8_v2(near, round, kSize));
    OK(cuCtxSetCurrent(contexts_[1]));
    OK(cuMemcpyPeer(far, contexts_[1], near, contexts_[0], kSize));
    OK(cuCtxSetCurrent(contexts_[0]));
    OK(cuMemsetD8_v2(near, 0, kSize));  // Later work of the source.
    OK(cuCtxSetCurrent(contexts_[1]));
    std::uint8_t last = 0;
    OK(cuMemcpyDtoH_v2(&last, far + kSize - 1, 1));
    EXPECT_EQ(last, round);
  }
}

TEST_F(AbiTest, EndlessDescendantsOfAKernelEndAtItsTimeLimit) {
  FAULTS(run("again", kAgainPtx), CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST_F(AbiTest, AnEndlessKernelEndsAtItsTimeLimit) {
  FAULTS(run("spin"), CUDA_ERROR_LAUNCH_TIMEOUT);
  // It is over, whatever is reset; the other device has nothing to do with it.
  const auto afterwards = [this] {
    CUdeviceptr address = 0;
    CUcontext again = nullptr;
    return run("spin") == CUDA_ERROR_LAUNCH_TIMEOUT &&
           cuMemAlloc_v2(&address, 4) == CUDA_ERROR_LAUNCH_TIMEOUT &&
           cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS &&
           cuDevicePrimaryCtxRetain(&again, 0) == CUDA_ERROR_LAUNCH_TIMEOUT &&
           cuCtxSetCurrent(contexts_[1]) == CUDA_SUCCESS &&
           cuMemAlloc_v2(&address, 4) == CUDA_SUCCESS;
  };
  FAULTS(afterwards(), true);
}

TEST_F(AbiTest, AResetEndsWhatRuns) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&function, module, "spin"));
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  OK(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUcontext again = nullptr;
  OK(cuDevicePrimaryCtxRetain(&again, 0));
  EXPECT_EQ(again, contexts_[0]);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  FAULTS(run("die"), CUDA_ERROR_LAUNCH_FAILED);
}

// Threads of it may be at work when a program closes it.
TEST_F(AbiTest, TheLibraryStaysWhoeverClosesIt) {
  Dl_info found{};
  link_map* map = nullptr;
  ASSERT_NE(::dladdr1(reinterpret_cast<void*>(&cuInit), &found, reinterpret_cast<void**>(&map),
                      RTLD_DL_LINKMAP),
            0);
  ElfW(Xword) flags = 0;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_FLAGS_1) flags = entry->d_un.d_val;
  }
  EXPECT_NE(flags & DF_1_NODELETE, 0u) << found.dli_fname;
}

// Though the primary context has its handle again. What is made of the graph later does not,
// either.
TEST_F(AbiTest, GraphsOfAContextThatWasResetDoNotRun) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUgraph graph = nullptr;
  CUgraph empty = nullptr;
  CUgraphNode node = nullptr;
  std::array<CUgraphExec, 4> execs{};
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&function, module, "die"));
  OK(cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function;
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  OK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
  OK(cuGraphCreate(&empty, 0));
  OK(cuGraphInstantiateWithFlags(&execs[0], graph, 0));
  OK(cuGraphInstantiateWithFlags(&execs[1], empty, 0));
  OK(cuDevicePrimaryCtxReset_v2(0));
  CUcontext again = nullptr;
  OK(cuDevicePrimaryCtxRetain(&again, 0));
  ASSERT_EQ(again, contexts_[0]);
  for (const CUgraphExec exec : {execs[0], execs[1]}) {
    cuuint64_t flags = 0;
    CUgraphExecUpdateResultInfo info{};
    EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuGraphUpload(exec, nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuGraphExecGetFlags(exec, &flags), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuGraphNodeSetEnabled(exec, node, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuGraphExecDestroy(exec));
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
  }
  OK(cuGraphInstantiateWithFlags(&execs[2], graph, 0));
  EXPECT_EQ(cuGraphLaunch(execs[2], nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  OK(cuGraphInstantiateWithFlags(&execs[3], empty, 0));
  OK(cuGraphLaunch(execs[3], nullptr));
  OK(cuCtxSynchronize());
  OK(cuGraphExecDestroy(execs[2]));
  OK(cuGraphExecDestroy(execs[3]));
  OK(cuGraphDestroy(graph));
  OK(cuGraphDestroy(empty));
}

TEST_F(AbiTest, AnExportedAllocationOutlivesItsHandle) {
  constexpr std::size_t kSize = 4 * kMiB;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle made = 0;
  OK(cuMemCreate(&made, kSize, &prop, 0));
  CUdeviceptr address = 0;
  OK(cuMemAddressReserve(&address, kSize, 0, 0x340000000000, 0));
  EXPECT_EQ(address, 0x340000000000u);
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemMap(address, kSize, 0, made, 0));
  OK(cuMemSetAccess(address, kSize, &access, 1));
  EXPECT_EQ(store(address + kSize - 4, 77), CUDA_SUCCESS);
  int fd = -1;
  OK(cuMemExportToShareableHandle(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cuMemUnmap(address, kSize));
  OK(cuMemRelease(made));
  CUmemGenericAllocationHandle again = 0;
  OK(cuMemImportFromShareableHandle(&again, pointer_at(static_cast<std::uint64_t>(fd)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(fd);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  OK(cuMemMap(address, kSize, 0, again, 0));
  OK(cuMemSetAccess(address, kSize, &access, 1));
  std::uint32_t value = 0;
  OK(cuMemcpyDtoH_v2(&value, address + kSize - 4, sizeof value));
  EXPECT_EQ(value, 77u);
  FAULTS(store(address, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuMemUnmap(address, kSize));
  OK(cuMemRelease(again));
  OK(cuMemAddressFree(address, kSize));
}

TEST_F(AbiTest, AForkedChildHasNoDriver) {
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    const bool good = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                      cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                      cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(AbiTest, MemoryIsBoundedAndAccountedFor) {
  std::size_t before = 0;
  std::size_t total = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc_v2(&address, total / 2));
  std::size_t now = 0;
  OK(cuMemGetInfo_v2(&now, &total));
  EXPECT_EQ(before - now, total / 2);
  OK(cuMemFree_v2(address));
  OK(cuMemGetInfo_v2(&now, &total));
  EXPECT_EQ(now, before);
}

CUresult add_to(CUlinkState link, std::string& text) {
  return cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "", 0, nullptr,
                          nullptr);
}

TEST_F(AbiTest, ALinkTakesOnlySoManyTextsHoweverTheyCome) {
  CUlinkState link = nullptr;
  OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n";
  for (std::size_t i = 0; i < kLinkTextsMax; ++i) OK(add_to(link, text));
  EXPECT_EQ(add_to(link, text), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuLinkDestroy(link));
}

TEST_F(AbiTest, ALinkTakesOnlySoManyRegistersHoweverTheyCome) {
  CUlinkState link = nullptr;
  OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  const std::string count = std::to_string(ptx::kRegistersMax);
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n.func f() { .reg .b32 r<" +
                     count + ">; ret; }\n";
  for (std::size_t i = 0; i < ptx::kAllRegistersMax / ptx::kRegistersMax; ++i)
    OK(add_to(link, text));
  EXPECT_EQ(add_to(link, text), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuLinkDestroy(link));
}

TEST_F(AbiTest, ALinkTakesOnlySoMuchPtxHoweverItComes) {
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n/*";
  text += std::string(kLinkTextBytesMax / 2, '.') + "*/";
  CUlinkState link = nullptr;
  OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  OK(add_to(link, text));
  EXPECT_EQ(add_to(link, text), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuLinkDestroy(link));
}

TEST_F(AbiTest, MemoryFreedInStreamOrderServesTheNextAllocation) {
  std::size_t total = 0;
  std::size_t before = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  const std::size_t size = total / 3 * 2;
  for (int i = 0; i < 10; ++i) {
    CUdeviceptr address = 0;
    OK(cuMemAllocAsync(&address, size, nullptr));
    OK(cuMemsetD8Async(address, 1, 4096, nullptr));
    OK(cuMemFreeAsync(address, nullptr));
  }
  OK(cuCtxSynchronize());
}

TEST_F(AbiTest, ThreadsMayCreateAndDestroyAllTheTime) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      cuCtxSetCurrent(contexts_[0]);
      for (int i = 0; i < 100; ++i) {
        CUstream stream = nullptr;
        CUevent event = nullptr;
        CUdeviceptr address = 0;
        EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        EXPECT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
        EXPECT_EQ(cuMemAllocAsync(&address, 1000, stream), CUDA_SUCCESS);
        EXPECT_EQ(cuMemsetD8Async(address, 3, 1000, stream), CUDA_SUCCESS);
        EXPECT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
        EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
        EXPECT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
        EXPECT_EQ(cuEventDestroy_v2(event), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace flyt::softgpu
