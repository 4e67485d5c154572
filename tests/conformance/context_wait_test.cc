// cuCtxSynchronize: it waits for every kind of stream that a context has.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

// Work that takes a while in a stream, and tells when it is over.
class Work {
 public:
  explicit Work(CUstream stream) {
    EXPECT_EQ(CUDA_SUCCESS, cu().cuLaunchHostFunc(stream, take_a_while, this));
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  bool over() const { return over_.load(); }

 private:
  static void take_a_while(void* self) {
    // lint: allow(sleep): a wait that is none comes back before this is over.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    static_cast<Work*>(self)->over_ = true;
  }
  std::atomic<bool> over_{false};
};

using ContextWaitTest = ContextTest;

TEST_F(ContextWaitTest, WaitsForTheDefaultStream) {
  CU_OK(cu().cuCtxSynchronize());
  const Work work(CU_STREAM_LEGACY);
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_TRUE(work.over());
}

TEST_F(ContextWaitTest, WaitsForAThreadsOwnDefaultStream) {
  const Work work(CU_STREAM_PER_THREAD);
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_TRUE(work.over());
}

TEST_F(ContextWaitTest, WaitsForAStreamThatIsIndependentOfTheDefaultOne) {
  const Stream stream;
  for (int i = 0; i < 3; ++i) {
    const Work work(stream);
    CU_OK(cu().cuCtxSynchronize());
    EXPECT_TRUE(work.over()) << i;
    CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(stream));
  }
}

TEST_F(ContextWaitTest, WaitsForAStreamThatTheDefaultOneWaitsFor) {
  const Stream stream(CU_STREAM_DEFAULT);
  const Work work(stream);
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_TRUE(work.over());
}

TEST_F(ContextWaitTest, WaitsForAStreamOfAnotherThread) {
  CUstream stream = nullptr;
  std::thread([&] {
    const Unrecorded quiet;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }).join();
  const Work work(stream);
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_TRUE(work.over());
  CU_OK(cu().cuStreamDestroy_v2(stream));
}

TEST_F(ContextWaitTest, WaitsForHoweverManyStreams) {
  for (const std::size_t many : {2u, 3u, 4u, 20u}) {
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Work>> work;
    for (std::size_t i = 0; i < many; ++i) {
      streams.push_back(std::make_unique<Stream>());
      if (i + 2 >= many) work.push_back(std::make_unique<Work>(*streams.back()));
    }
    CU_OK(cu().cuCtxSynchronize());
    for (const auto& each : work) EXPECT_TRUE(each->over()) << many;
  }
}

TEST_F(ContextWaitTest, WaitsForAStreamThatHasEndedWithWorkInIt) {
  CUstream stream = nullptr;
  CU_OK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const Work work(stream);
  CU_OK(cu().cuStreamDestroy_v2(stream));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_TRUE(work.over());
}

TEST_F(ContextWaitTest, WhatKernelsWroteIsThere) {
  const Stream stream;
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  const DeviceMemory memory(8);
  for (std::uint32_t i = 1; i <= 50; ++i) {
    CU_OK(launch(store, 1, 1, stream, static_cast<CUdeviceptr>(memory), i));
    CU_OK(launch(store, 1, 1, nullptr, static_cast<CUdeviceptr>(memory) + 4, i + 1));
    CU_OK(cu().cuCtxSynchronize());
    ASSERT_EQ(i, memory.read<std::uint32_t>()[0]);
    ASSERT_EQ(i + 1, memory.read<std::uint32_t>()[1]);
  }
}

TEST_F(ContextWaitTest, StreamsMayComeAndGoMeanwhile) {
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::thread other([&] {
    const Unrecorded quiet;
    if (cu().cuCtxSetCurrent(context) != CUDA_SUCCESS) ++wrong;
    while (!over) {
      CUstream stream = nullptr;
      if (cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) ++wrong;
      if (cu().cuStreamDestroy_v2(stream) != CUDA_SUCCESS) ++wrong;
    }
  });
  {
    const Unrecorded quiet;
    for (int i = 0; i < 100; ++i) wrong += cu().cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 1;
  }
  over = true;
  other.join();
  EXPECT_EQ(0, wrong.load());
}

}  // namespace
}  // namespace flyt::conformance
