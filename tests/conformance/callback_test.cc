// Host functions and stream callbacks: order, arguments, and what they may call.
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

using CallbackTest = ContextTest;

void append(void* user) {
  auto* list = static_cast<std::pair<std::vector<int>*, int>*>(user);
  list->first->push_back(list->second);
}

TEST_F(CallbackTest, HostFunctionsRunInStreamOrder) {
  const Stream stream;
  std::vector<int> order;
  std::pair<std::vector<int>*, int> calls[] = {{&order, 1}, {&order, 2}, {&order, 3}};
  for (auto& call : calls) CU_OK(cu().cuLaunchHostFunc(stream, append, &call));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ((std::vector<int>{1, 2, 3}), order);
}

struct Seen {
  const PinnedMemory* memory = nullptr;
  std::uint32_t value = 0;
};

void look(void* user) {
  auto* seen = static_cast<Seen*>(user);
  seen->value = *seen->memory->as<volatile std::uint32_t>();
}

TEST_F(CallbackTest, AHostFunctionSeesTheBytesCopiedBeforeIt) {
  const Stream stream;
  const Module module(kBasicPtx);
  const DeviceMemory memory(4);
  const PinnedMemory out(4);
  *out.as<std::uint32_t>() = 0;
  Seen seen{&out, 0};
  CU_OK(
      launch(module.function("store_value"), 1, 1, stream, static_cast<CUdeviceptr>(memory), 55u));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory, 4, stream));
  CU_OK(cu().cuLaunchHostFunc(stream, look, &seen));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(55u, seen.value);
}

struct Held {
  std::atomic<bool> running{false};
  std::atomic<bool> release{false};
  bool released = false;
};

void hold(void* user) {
  auto* held = static_cast<Held*>(user);
  held->running = true;
  held->released = eventually([&] { return held->release.load(); });
}

TEST_F(CallbackTest, WorkBehindAHostFunctionWaitsForIt) {
  const Stream stream;
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  const DeviceMemory memory(4);
  memory.fill(0);
  Held held;
  CU_OK(cu().cuLaunchHostFunc(stream, hold, &held));
  CU_OK(launch(store, 1, 1, stream, static_cast<CUdeviceptr>(memory), 1u));
  ASSERT_TRUE(eventually([&] { return held.running.load(); }));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
  held.release = true;
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(1u, memory.read<std::uint32_t>()[0]);
}

// Also where both are found done at the same time.
TEST_F(CallbackTest, CopiesToTheSameMemoryInStreamsThatWaitForEachOtherStayInOrder) {
  const std::array<Stream, 2> streams;
  const std::array<DeviceMemory, 2> memory{DeviceMemory(4), DeviceMemory(4)};
  memory[0].fill(1);
  memory[1].fill(2);
  CU_OK(cu().cuCtxSynchronize());
  const PinnedMemory out(4);
  const Event between(CU_EVENT_DISABLE_TIMING);
  for (std::size_t i = 0; i < 20; ++i) {
    const Stream& before = streams[i % 2];
    const Stream& behind = streams[1 - i % 2];
    Held held;
    *out.as<std::uint32_t>() = 0;
    CU_OK(cu().cuLaunchHostFunc(before, hold, &held));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory[0], 4, before));
    CU_OK(cu().cuEventRecord(between, before));
    CU_OK(cu().cuStreamWaitEvent(behind, between, 0));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory[1], 4, behind));
    held.release = true;
    CU_OK(cu().cuStreamSynchronize(behind));
    EXPECT_EQ(0x02020202u, *out.as<std::uint32_t>());
    CU_OK(cu().cuStreamSynchronize(before));
    EXPECT_EQ(0x02020202u, *out.as<std::uint32_t>());
  }
}

// Unloading waits for the function, but nobody else does.
TEST_F(CallbackTest, AHostFunctionMayWaitForThoseWhoAllocateWhileCodeIsUnloaded) {
  const Stream stream;
  Held held;
  CUmodule module = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, kBasicPtx));
  CU_OK(cu().cuLaunchHostFunc(stream, hold, &held));
  ASSERT_TRUE(eventually([&] { return held.running.load(); }));
  CUcontext context = nullptr;
  CU_OK(cu().cuCtxGetCurrent(&context));
  std::atomic<bool> begun{false};
  std::array<CUdeviceptr, 300> addresses{};
  CUresult unloaded = CUDA_ERROR_UNKNOWN;
  std::thread other([&] {
    const Unrecorded quiet;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    begun = true;
    unloaded = cu().cuModuleUnload(module);
  });
  {
    const Unrecorded quiet;
    EXPECT_TRUE(eventually([&] { return begun.load(); }));
    // Freeing would wait for the function, too.
    for (CUdeviceptr& address : addresses) EXPECT_EQ(CUDA_SUCCESS, cu().cuMemAlloc_v2(&address, 4));
  }
  held.release = true;
  other.join();
  {
    const Unrecorded quiet;
    for (const CUdeviceptr address : addresses) EXPECT_EQ(CUDA_SUCCESS, cu().cuMemFree_v2(address));
  }
  CU_IS(CUDA_SUCCESS, unloaded);
  EXPECT_TRUE(held.released);
}

struct Answers {
  CUresult allocate = CUDA_SUCCESS;
  CUresult synchronize = CUDA_SUCCESS;
  CUresult create = CUDA_SUCCESS;
};

void call_cuda(void* user) {
  const Unrecorded quiet;
  auto* answers = static_cast<Answers*>(user);
  CUdeviceptr address = 0;
  CUevent event = nullptr;
  answers->allocate = cu().cuMemAlloc_v2(&address, 4);
  answers->synchronize = cu().cuCtxSynchronize();
  answers->create = cu().cuEventCreate(&event, 0);
}

struct Until {
  std::atomic<int> launched{0};
  int enough = 0;
  bool reached = false;
};

void wait_until(void* user) {
  auto* until = static_cast<Until*>(user);
  until->reached = eventually([&] { return until->launched.load() >= until->enough; });
}

// A driver takes about a thousand launches and then makes the caller wait; the function, which
// they stand behind, must run to its end meanwhile.
TEST_F(CallbackTest, FarMoreWorkThanADriverTakesMayStandBehindAHostFunction) {
  constexpr int kLaunches = 6000;
  const Stream stream;
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  const DeviceMemory memory(4);
  Until until;
  until.enough = 600;
  CU_OK(cu().cuLaunchHostFunc(stream, wait_until, &until));
  for (std::uint32_t i = 1; i <= kLaunches; ++i) {
    CU_OK(launch(store, 1, 1, stream, static_cast<CUdeviceptr>(memory), i));
    ++until.launched;
  }
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_TRUE(until.reached);
  EXPECT_EQ(static_cast<std::uint32_t>(kLaunches), memory.read<std::uint32_t>()[0]);
}

// More slices than a driver takes operations of a stream, with gaps between rows and slices.
struct ManySlices {
  static constexpr std::size_t kWidth = 4;
  static constexpr std::size_t kRows = 2;
  static constexpr std::size_t kPitch = 8;
  static constexpr std::size_t kHeight = 3;
  static constexpr std::size_t kSlices = 3000;
  static constexpr std::size_t kBytes = kPitch * kHeight * kSlices;

  static CUDA_MEMCPY3D from(CUdeviceptr device) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = device;
    copy.srcPitch = copy.dstPitch = kPitch;
    copy.srcHeight = copy.dstHeight = kHeight;
    copy.WidthInBytes = kWidth;
    copy.Height = kRows;
    copy.Depth = kSlices;
    return copy;
  }
  // Whether all of the box is 7, and what lies between is 0.
  static bool copied(const std::uint8_t* bytes) {
    for (std::size_t i = 0; i < kBytes; ++i) {
      const bool inside = i % kPitch < kWidth && i / kPitch % kHeight < kRows;
      if (bytes[i] != (inside ? 7 : 0)) return false;
    }
    return true;
  }
};

TEST_F(CallbackTest, ACopyOfManySlicesMayStandBehindAHostFunction) {
  const Stream stream;
  const DeviceMemory from(ManySlices::kBytes);
  const DeviceMemory to(ManySlices::kBytes);
  from.fill(7);
  to.fill(0);
  Held held;
  CU_OK(cu().cuLaunchHostFunc(stream, hold, &held));
  CUDA_MEMCPY3D copy = ManySlices::from(from);
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  CU_OK(cu().cuMemcpy3DAsync_v2(&copy, stream));
  held.release = true;
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_TRUE(ManySlices::copied(to.read<std::uint8_t>().data()));
}

TEST_F(CallbackTest, ACopyOfManySlicesToTheHostMayStandBehindAHostFunction) {
  const Stream stream;
  const DeviceMemory from(ManySlices::kBytes);
  from.fill(7);
  const PinnedMemory to(ManySlices::kBytes);
  std::memset(to.data(), 0, ManySlices::kBytes);
  Held held;
  CU_OK(cu().cuLaunchHostFunc(stream, hold, &held));
  CUDA_MEMCPY3D copy = ManySlices::from(from);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to.data();
  CU_OK(cu().cuMemcpy3DAsync_v2(&copy, stream));
  held.release = true;
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_TRUE(ManySlices::copied(to.as<std::uint8_t>()));
}

TEST_F(CallbackTest, CudaCallsFromAHostFunctionAreNotPermitted) {
  const Stream stream;
  Answers answers;
  CU_OK(cu().cuLaunchHostFunc(stream, call_cuda, &answers));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, answers.allocate);
  EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, answers.synchronize);
  EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, answers.create);
}

struct Asked {
  CUresult query = CUDA_ERROR_UNKNOWN;
  CUresult allocate = CUDA_SUCCESS;
  CUresult current = CUDA_SUCCESS;
};

void ask_about(CUstream stream, CUresult, void* user) {
  const Unrecorded quiet;
  auto* asked = static_cast<Asked*>(user);
  CUdeviceptr address = 0;
  CUcontext current = nullptr;
  asked->query = cu().cuStreamQuery(stream);
  asked->allocate = cu().cuMemAlloc_v2(&address, 4);
  asked->current = cu().cuCtxGetCurrent(&current);
}

TEST_F(CallbackTest, ACallbackMayOnlyAskAboutItsStream) {
  const Stream stream;
  Asked asked;
  CU_OK(cu().cuStreamAddCallback(stream, ask_about, &asked, 0));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, asked.query);
  EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, asked.allocate);
  EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, asked.current);
}

struct Called {
  CUstream stream = nullptr;
  CUresult status = CUDA_ERROR_UNKNOWN;
  int times = 0;
};

void called_back(CUstream stream, CUresult status, void* user) {
  auto* called = static_cast<Called*>(user);
  called->stream = stream;
  called->status = status;
  ++called->times;
}

TEST_F(CallbackTest, ACallbackGetsItsStreamAndStatus) {
  const Stream stream;
  Called called;
  CU_OK(cu().cuStreamAddCallback(stream, called_back, &called, 0));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(static_cast<CUstream>(stream), called.stream);
  EXPECT_EQ(CUDA_SUCCESS, called.status);
  EXPECT_EQ(1, called.times);
}

TEST_F(CallbackTest, ArgumentsAreChecked) {
  const Stream stream;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuLaunchHostFunc(stream, nullptr, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamAddCallback(stream, nullptr, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamAddCallback(stream, called_back, nullptr, 1));
}

void count(void* user) { ++*static_cast<std::atomic<int>*>(user); }

TEST_F(CallbackTest, ManyHostFunctionsOnManyStreamsAllRun) {
  std::atomic<int> counter{0};
  {
    const Stream streams[4];
    for (int i = 0; i < 200; ++i) CU_OK(cu().cuLaunchHostFunc(streams[i % 4], count, &counter));
    CU_OK(cu().cuCtxSynchronize());
  }
  EXPECT_EQ(200, counter);
}

}  // namespace
}  // namespace flyt::conformance
