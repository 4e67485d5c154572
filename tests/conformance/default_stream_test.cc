// The legacy default stream waits for and holds up blocking streams; the per-thread one does not.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class DefaultStreamTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    module = std::make_unique<Module>(kBasicPtx);
    store = module->function("store_value");
    add = module->function("add_one");
    memory = std::make_unique<DeviceMemory>(4);
    memory->fill(0);
  }
  CUresult write(CUstream stream, std::uint32_t value) const {
    return launch(store, 1, 1, stream, static_cast<CUdeviceptr>(*memory), value);
  }
  std::unique_ptr<Module> module;
  std::unique_ptr<DeviceMemory> memory;
  CUfunction store = nullptr;
  CUfunction add = nullptr;
};

TEST_F(DefaultStreamTest, TheLegacyStreamWaitsForBlockingStreams) {
  const Stream blocking(CU_STREAM_DEFAULT);
  Gate gate;
  gate.close(blocking);
  CU_OK(write(nullptr, 1));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(nullptr));
  EXPECT_EQ(1u, memory->read<std::uint32_t>()[0]);
}

TEST_F(DefaultStreamTest, BlockingStreamsWaitForTheLegacyStream) {
  const Stream blocking(CU_STREAM_DEFAULT);
  Gate gate;
  gate.close(nullptr);
  CU_OK(write(blocking, 2));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(blocking));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(blocking));
  EXPECT_EQ(2u, memory->read<std::uint32_t>()[0]);
}

TEST_F(DefaultStreamTest, NonBlockingStreamsIgnoreTheLegacyStream) {
  const Stream non_blocking(CU_STREAM_NON_BLOCKING);
  Gate gate;
  gate.close(nullptr);
  CU_OK(write(non_blocking, 3));
  CU_OK(cu().cuStreamSynchronize(non_blocking));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(nullptr));
}

TEST_F(DefaultStreamTest, LegacyByNameIsTheSameStream) {
  Gate gate;
  gate.close(CU_STREAM_LEGACY);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(CU_STREAM_LEGACY));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(nullptr));
}

TEST_F(DefaultStreamTest, ThePerThreadStreamWaitsForTheLegacyOne) {
  Gate gate;
  gate.close(nullptr);
  CU_OK(write(CU_STREAM_PER_THREAD, 4));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(4u, memory->read<std::uint32_t>()[0]);
}

TEST_F(DefaultStreamTest, EachThreadHasItsOwnPerThreadStream) {
  Gate gate;
  gate.close(CU_STREAM_PER_THREAD);
  CUresult other = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    other = cu().cuStreamQuery(CU_STREAM_PER_THREAD);
  }).join();
  EXPECT_EQ(CUDA_SUCCESS, other);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

TEST_F(DefaultStreamTest, EachThreadHasItsOwnPerThreadStreamHoweverManyHaveEnded) {
  constexpr int kEnded = 4200;
  int written = 0;
  {
    const Unrecorded quiet;
    for (int i = 0; i < kEnded; ++i) {
      std::thread([&] {
        const CUresult entered = cu().cuCtxSetCurrent(context);
        written += entered == CUDA_SUCCESS && write(CU_STREAM_PER_THREAD, 1) == CUDA_SUCCESS;
      }).join();
    }
  }
  EXPECT_EQ(kEnded, written);
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(1u, memory->read<std::uint32_t>()[0]);
  Gate gate;
  CUresult own = CUDA_ERROR_UNKNOWN;
  CUresult other = CUDA_ERROR_UNKNOWN;
  const auto query = [&](CUresult& answer) {
    CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    answer = cu().cuStreamQuery(CU_STREAM_PER_THREAD);
  };
  // Two new ones, for this one may have had its stream before.
  std::thread([&] {
    CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    gate.close(CU_STREAM_PER_THREAD);
    std::thread([&] { query(other); }).join();
    query(own);
    gate.open();
    CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_EQ(CUDA_SUCCESS, other);
  EXPECT_EQ(CUDA_ERROR_NOT_READY, own);
}

// What a thread that ends has left in its stream.
struct Left {
  std::atomic<bool> awaited{false};
  std::atomic<bool> done{false};
  static void run(void* data) {
    auto& left = *static_cast<Left*>(data);
    // A driver may let a thread end only when that is done.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!left.awaited && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    // lint: allow(sleep): who awaits it has said so just before the call that waits
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    left.done = true;
  }
  void leave(CUcontext context) {
    std::thread([&] {
      CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      CU_IS(CUDA_SUCCESS, cu().cuLaunchHostFunc(CU_STREAM_PER_THREAD, &Left::run, this));
    }).join();
    awaited = true;
  }
};

TEST_F(DefaultStreamTest, TheContextWaitsForWhatAThreadThatEndedHasLeft) {
  Left left;
  left.leave(context);
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_TRUE(left.done);
}

TEST_F(DefaultStreamTest, TheLegacyStreamWaitsForWhatAThreadThatEndedHasLeft) {
  Left left;
  left.leave(context);
  CU_OK(write(nullptr, 8));
  CU_OK(cu().cuStreamSynchronize(nullptr));
  EXPECT_TRUE(left.done);
  EXPECT_EQ(8u, memory->read<std::uint32_t>()[0]);
}

// What a thread does at its end: for thread-locals, then for each round of destructors of keys.
struct AtEnd {
  std::function<void()> act;
  int rounds = 0;
  pthread_key_t key{};
  ~AtEnd() { act(); }
  static void run(void* data) {
    auto& end = *static_cast<AtEnd*>(data);
    end.act();
    if (--end.rounds == 0) return;
    EXPECT_EQ(0, ::pthread_setspecific(end.key, data));
  }
};

// NVIDIA's driver has forgotten a thread's context when keys' destructors run.
TEST_F(DefaultStreamTest, DestructorsOfAThreadMayStillUseItsStream) {
  std::uint32_t counted = 0;
  const auto count = [&] {
    const Unrecorded quiet;
    const CUresult launched = launch(add, 1, 1, CU_STREAM_PER_THREAD,
                                     static_cast<CUdeviceptr>(*memory), std::uint32_t{1});
    if (launched == CUDA_SUCCESS) ++counted;
    EXPECT_TRUE(launched == CUDA_SUCCESS || launched == CUDA_ERROR_INVALID_CONTEXT) << launched;
    EXPECT_EQ(launched, cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
  };
#if defined(__SANITIZE_THREAD__)
  constexpr int kRounds = 2;  // In the last one the sanitizer has forgotten the thread.
#else
  constexpr int kRounds = 3;
#endif
  AtEnd keyed{.act = count, .rounds = kRounds};
  ASSERT_EQ(0, ::pthread_key_create(&keyed.key, &AtEnd::run));
  std::thread([&] {
    CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    thread_local AtEnd local{.act = count};
    EXPECT_EQ(0, ::pthread_setspecific(keyed.key, &keyed));
    local.act();
  }).join();
  keyed.act = [] {};
  EXPECT_EQ(0, ::pthread_key_delete(keyed.key));
  EXPECT_GE(counted, 2u);
  EXPECT_EQ(counted, memory->read<std::uint32_t>()[0]);
}

TEST_F(DefaultStreamTest, PtszFormsUseThePerThreadStream) {
  unsigned long long per_thread = 0;
  unsigned long long by_suffix = 0;
  CU_OK(cu().cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread));
  CU_OK(cu().cuStreamGetId_ptsz(nullptr, &by_suffix));
  EXPECT_EQ(per_thread, by_suffix);
  Gate gate;
  gate.close(CU_STREAM_PER_THREAD);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery_ptsz(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize_ptsz(nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery_ptsz(nullptr));
}

TEST_F(DefaultStreamTest, TheLegacyStreamIsBusyWhileABlockingStreamIs) {
  Gate gate;
  gate.close(CU_STREAM_PER_THREAD);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
}

TEST_F(DefaultStreamTest, AMixtureOfStreamsKeepsItsOrder) {
  const Stream blocking(CU_STREAM_DEFAULT);
  for (std::uint32_t i = 0; i < 100; ++i) {
    CU_OK(launch(add, 1, 32, i % 2 == 0 ? nullptr : static_cast<CUstream>(blocking),
                 static_cast<CUdeviceptr>(*memory), 1u));
  }
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(100u, memory->read<std::uint32_t>()[0]);
}

}  // namespace
}  // namespace flyt::conformance
