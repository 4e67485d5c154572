// Several threads: one that waits, loads or allocates never holds up another's launches; threads
// that order themselves see their commands in that order.
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class ThreadsTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    module = std::make_unique<Module>(kBasicPtx);
    add = module->function("add_one");
    store = module->function("store_value");
    memory = std::make_unique<DeviceMemory>(4096);
    memory->fill(0);
  }
  void adopt_context() const { ASSERT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context)); }
  CUresult add_one(CUstream stream) const {
    return launch(add, 1, 32, stream, static_cast<CUdeviceptr>(*memory), 1u);
  }
  std::unique_ptr<Module> module;
  std::unique_ptr<DeviceMemory> memory;
  CUfunction add = nullptr;
  CUfunction store = nullptr;
};

TEST_F(ThreadsTest, LaunchesProceedWhileAnotherThreadWaits) {
  const Stream held;
  const Stream busy;
  Gate gate;
  gate.close(held);
  std::atomic<bool> waiting{false};
  std::atomic<bool> released{false};
  std::thread waiter([&] {
    adopt_context();
    waiting = true;
    CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(held));
    released = true;
  });
  ASSERT_TRUE(eventually([&] { return waiting.load(); }));
  for (int i = 0; i < 300; ++i) CU_OK(add_one(busy));
  CU_OK(cu().cuStreamSynchronize(busy));
  EXPECT_FALSE(released);
  gate.open();
  waiter.join();
  EXPECT_EQ(300u, memory->read<std::uint32_t>()[0]);
}

TEST_F(ThreadsTest, LaunchesProceedWhileAnotherThreadWaitsForAnEvent) {
  const Stream held;
  const Stream busy;
  const Event event;
  Gate gate;
  gate.close(held);
  CU_OK(cu().cuEventRecord(event, held));
  std::atomic<bool> released{false};
  std::thread waiter([&] {
    adopt_context();
    CU_IS(CUDA_SUCCESS, cu().cuEventSynchronize(event));
    released = true;
  });
  for (int i = 0; i < 300; ++i) CU_OK(add_one(busy));
  CU_OK(cu().cuStreamSynchronize(busy));
  EXPECT_FALSE(released);
  gate.open();
  waiter.join();
}

// One thread waits for `event`, another records it anew behind work that does not end. True if the
// wait ends with the first record; it may also have begun after the second.
bool waits_for_the_first_record(CUcontext context) {
  constexpr int kCrowd = 200;
  const Unrecorded quiet;
  const Stream first;
  const Stream second;
  const Event event;
  Gate early;
  Gate late;
  early.close(first);
  late.close(second);
  EXPECT_EQ(CUDA_SUCCESS, cu().cuEventRecord(event, first));
  // A server cannot spare a thread for each of many waits.
  std::atomic<int> waiting{0};
  std::vector<std::thread> crowd;
  for (int i = 0; i < kCrowd; ++i) {
    crowd.emplace_back([&] {
      const Unrecorded quiet_too;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      ++waiting;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(second));
    });
  }
  eventually([&] { return waiting == kCrowd; });
  for (int i = 0; i < 100; ++i) cu().cuStreamQuery(second);
  std::atomic<bool> released{false};
  std::thread waiter([&] {
    const Unrecorded quiet_too;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    ++waiting;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuEventSynchronize(event));
    released = true;
  });
  eventually([&] { return waiting == kCrowd + 1; });
  for (int i = 0; i < 100; ++i) cu().cuStreamQuery(first);
  EXPECT_EQ(CUDA_SUCCESS, cu().cuEventRecord(event, second));
  early.open();
  const Instant patience = system_clock().now() + std::chrono::seconds(2);
  while (!released && system_clock().now() < patience) cu().cuStreamQuery(second);
  const bool first_only = released;
  late.open();
  waiter.join();
  for (std::thread& thread : crowd) thread.join();
  return first_only;
}

TEST_F(ThreadsTest, AWaitForAnEventIsForTheRecordThatWasThere) {
  const Unrecorded quiet;
  int seen = 0;
  // On a busy machine many waits begin after the second record.
  for (int i = 0; i < 20 && seen < 2; ++i) seen += waits_for_the_first_record(context) ? 1 : 0;
  EXPECT_EQ(seen, 2);
}

TEST_F(ThreadsTest, LaunchesProceedWhileAnotherThreadCopiesFromABusyStream) {
  const Stream held;
  const Stream busy;
  const PinnedMemory out(64);
  const DeviceMemory source(64);
  Gate gate;
  gate.close(held);
  CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), source, 64, held));
  std::thread waiter([&] {
    adopt_context();
    CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(held));
  });
  for (int i = 0; i < 100; ++i) CU_OK(add_one(busy));
  CU_OK(cu().cuStreamSynchronize(busy));
  gate.open();
  waiter.join();
}

// Threads that wait for a stream until its gate opens.
class ManyWaiters {
 public:
  explicit ManyWaiters(CUcontext context) {
    gate_.close(held);
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this, context] {
        ASSERT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
        ++started_;
        CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(held));
        ++done_;
      });
    }
    EXPECT_TRUE(eventually([&] { return started_ == kThreads; }));
  }
  ~ManyWaiters() { let_go(); }
  ManyWaiters(const ManyWaiters&) = delete;
  ManyWaiters& operator=(const ManyWaiters&) = delete;

  void let_go() {
    gate_.open();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int done() const { return done_; }

  static constexpr int kThreads = 300;
  const Stream held;

 private:
  Gate gate_;
  std::atomic<int> started_{0};
  std::atomic<int> done_{0};
  std::vector<std::thread> threads_;
};

TEST_F(ThreadsTest, ManyThreadsMayBlockAtOnce) {
  const Stream busy;
  ManyWaiters waiters(context);
  for (int i = 0; i < 300; ++i) CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(waiters.held));
  CU_OK(add_one(busy));
  CU_OK(cu().cuStreamSynchronize(busy));
  EXPECT_EQ(1u, memory->read<std::uint32_t>()[0]);
  EXPECT_EQ(0, waiters.done());
  waiters.let_go();
  EXPECT_EQ(ManyWaiters::kThreads, waiters.done());
}

// Nor does what takes a while stand behind them.
TEST_F(ThreadsTest, CodeIsLoadedWhileManyThreadsBlock) {
  constexpr std::chrono::seconds kPatience(15);
  ManyWaiters waiters(context);
  std::atomic<bool> loaded{false};
  std::optional<Module> another;  // To unload it would wait for everything.
  std::thread loader([&] {
    adopt_context();
    another.emplace(kBasicPtx);
    loaded = true;
  });
  const auto until = std::chrono::steady_clock::now() + kPatience;
  EXPECT_TRUE(eventually([&] { return loaded || std::chrono::steady_clock::now() > until; }));
  EXPECT_TRUE(loaded);
  EXPECT_EQ(0, waiters.done());
  waiters.let_go();
  loader.join();
}

TEST_F(ThreadsTest, LaunchesProceedWhileOthersLoadModulesAndAllocate) {
  std::atomic<bool> stop{false};
  std::thread loader([&] {
    adopt_context();
    while (!stop) {
      const Unrecorded quiet;
      CUmodule loaded = nullptr;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuModuleLoadData(&loaded, kBasicPtx));
      EXPECT_EQ(CUDA_SUCCESS, cu().cuModuleUnload(loaded));
    }
  });
  std::thread allocator([&] {
    adopt_context();
    while (!stop) {
      const Unrecorded quiet;
      CUdeviceptr address = 0;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuMemAlloc_v2(&address, 3 << 20));
      EXPECT_EQ(CUDA_SUCCESS, cu().cuMemFree_v2(address));
    }
  });
  const Stream stream;
  for (int i = 0; i < 500; ++i) CU_OK(add_one(stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  stop = true;
  loader.join();
  allocator.join();
  EXPECT_EQ(500u, memory->read<std::uint32_t>()[0]);
}

TEST_F(ThreadsTest, HostOrderedThreadsKeepTheirOrderOnOneStream) {
  const Stream stream;
  std::atomic<std::uint32_t> turn{0};
  constexpr std::uint32_t kTurns = 200;
  const auto play = [&](std::uint32_t parity) {
    adopt_context();
    for (std::uint32_t i = parity; i < kTurns; i += 2) {
      if (!eventually([&] { return turn == i; })) return;
      CU_IS(CUDA_SUCCESS, launch(store, 1, 1, stream, static_cast<CUdeviceptr>(*memory), i + 1));
      turn = i + 1;
    }
  };
  std::thread even(play, 0);
  std::thread odd(play, 1);
  even.join();
  odd.join();
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(kTurns, memory->read<std::uint32_t>()[0]);
}

TEST_F(ThreadsTest, FourThreadsWorkOnTheirOwnStreams) {
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      adopt_context();
      const Stream stream;
      const DeviceMemory own(4);
      own.fill(0);
      for (int i = 0; i < 200; ++i) {
        CU_IS(CUDA_SUCCESS, launch(add, 1, 32, stream, static_cast<CUdeviceptr>(own), 1u));
        if (i % 50 == t) {
          CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
        }
      }
      CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
      EXPECT_EQ(200u, own.read<std::uint32_t>()[0]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ThreadsTest, ThreeHundredThreadsMayEachCall) {
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 300; ++t) {
    threads.emplace_back([&] {
      const Unrecorded quiet;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      EXPECT_EQ(CUDA_SUCCESS, add_one(nullptr));
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSynchronize());
      ++done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(300, done);
  EXPECT_EQ(300u, memory->read<std::uint32_t>()[0]);
}

// Such a copy may be made only when its stream has come to it, and all that stands behind it waits.
TEST_F(ThreadsTest, ACopyBehindAHostFunctionIsMadeHoweverMuchStandsBehindIt) {
  // More than a server lets a stream hold that waits for the client; fewer than a driver takes.
  constexpr std::uint32_t kLaunches = 700;
  const Stream stream;
  const PinnedMemory word(sizeof(std::uint32_t));
  struct Turnstile {
    std::atomic<bool> open{false};
    std::uint32_t* word = nullptr;
  } turnstile;
  turnstile.word = word.as<std::uint32_t>();
  CU_OK(cu().cuLaunchHostFunc(
      stream,
      [](void* data) {
        auto& at = *static_cast<Turnstile*>(data);
        while (!at.open) std::this_thread::yield();
        *at.word = 7;
      },
      &turnstile));
  CU_OK(cu().cuMemcpyHtoDAsync_v2(*memory, word.data(), sizeof(std::uint32_t), stream));
  for (std::uint32_t i = 0; i < kLaunches; ++i) CU_OK(add_one(stream));
  turnstile.open = true;
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(7 + kLaunches, memory->read<std::uint32_t>()[0]);
}

// More than a driver takes. The thread that launches may wait; nobody else does.
class FullStreamTest : public ThreadsTest {
 protected:
  static constexpr std::uint32_t kLaunches = 3000;

  void SetUp() override {
    ThreadsTest::SetUp();
    other.emplace(CU_STREAM_NON_BLOCKING, -1);
    word.emplace(4);
    gate.emplace(4);
    *gate->as<std::uint32_t>() = 0;
    CU_OK(cu().cuMemHostGetDevicePointer_v2(&there, gate->data(), 0));
    // Natively code that is loaded when it is first used waits for whatever stands.
    CU_OK(add_one(*other));
    CU_OK(cu().cuMemsetD8Async(*memory, 0, 4, *other));
    CU_OK(cu().cuStreamSynchronize(*other));
  }
  // What is given to the stream from now on waits for open().
  CUresult stand(CUstream stream) const {
    return cu().cuStreamWaitValue32_v2(stream, there, 1, CU_STREAM_WAIT_VALUE_EQ);
  }
  void open() const {
    CU_OK(cu().cuStreamWriteValue32_v2(*other, there, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  void launch_all(CUstream stream) {
    for (std::uint32_t i = 0; i < kLaunches; ++i) {
      EXPECT_EQ(CUDA_SUCCESS, add_one(stream));
      ++launched;
    }
  }
  void others_go_on() const {
    const Unrecorded quiet;
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(CUDA_SUCCESS,
                cu().cuMemsetD8Async(*word, static_cast<unsigned char>(i), 4, *other));
      EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(*other));
    }
  }

  // Has a thread of its own give a stream that stands more than it holds.
  void fill_while_others_go_on(CUstream stream) {
    std::thread launching([&] {
      const Unrecorded quiet;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      EXPECT_EQ(CUDA_SUCCESS, stand(stream));
      launch_all(stream);
      EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
    });
    {
      const Unrecorded quiet;
      EXPECT_TRUE(eventually([&] { return launched > 700; }));
    }
    others_go_on();
    EXPECT_LT(launched, kLaunches);
    open();
    launching.join();
    EXPECT_EQ(kLaunches, memory->read<std::uint32_t>()[0]);
  }

  std::optional<Stream> other;  // Sure to have a queue of its own.
  std::optional<DeviceMemory> word;
  std::optional<PinnedMemory> gate;
  CUdeviceptr there = 0;
  std::atomic<std::uint32_t> launched{0};
};

TEST_F(FullStreamTest, HoldsUpNoOtherThread) {
  const Stream standing;
  fill_while_others_go_on(standing);
}

TEST_F(FullStreamTest, OfAThreadsOwnHoldsUpNoOtherThread) {
  fill_while_others_go_on(CU_STREAM_PER_THREAD);
}

// As many streams as a server tells of, each so full that it is told of, stand already.
TEST_F(FullStreamTest, BesideManyOthersHoldsUpNoOtherThread) {
  constexpr int kEach = 500;
  std::vector<std::unique_ptr<Stream>> deep;
  {
    const Unrecorded quiet;
    for (int i = 0; i < 33; ++i) {
      deep.push_back(std::make_unique<Stream>());
      EXPECT_EQ(CUDA_SUCCESS, stand(*deep.back()));
      for (int n = 0; n < kEach; ++n) {
        EXPECT_EQ(CUDA_SUCCESS, cu().cuMemsetD8Async(*word, 1, 4, *deep.back()));
      }
    }
  }
  const Stream standing;
  fill_while_others_go_on(standing);
  CU_OK(cu().cuCtxSynchronize());
}

// Drivers may wait for all work while they load code, and let nobody else in. That work may be a
// function of the program's own, which is not to wait for any of them.
class LoadWaitsTest : public ThreadsTest {
 protected:
  struct Meeting {
    std::atomic<bool> loading{false};
    std::uint32_t* word = nullptr;
    std::uint32_t value = 0;
  };
  static void meet(void* data) {
    auto& meeting = *static_cast<Meeting*>(data);
    while (!meeting.loading) std::this_thread::yield();
    // lint: allow(sleep): nobody can tell when the loader is in the driver.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    *meeting.word = meeting.value;
  }
};

TEST_F(LoadWaitsTest, AHostFunctionThatRunsMeanwhileEnds) {
  const Stream stream;
  const Stream other;
  const PinnedMemory word(sizeof(std::uint32_t));
  CUdeviceptr there = 0;
  CU_OK(cu().cuMemHostGetDevicePointer_v2(&there, word.data(), 0));
  std::uint32_t count = 0;
  for (std::uint32_t round = 1; round <= 5; ++round) {
    Meeting meeting;
    meeting.word = static_cast<std::uint32_t*>(word.data());
    meeting.value = 10 * round;
    CU_OK(cu().cuLaunchHostFunc(stream, meet, &meeting));
    CU_OK(launch(add, 1, 32, stream, there, 1u));
    CUresult loaded = CUDA_ERROR_UNKNOWN;
    std::thread loader([&] {
      adopt_context();
      CUmodule code = nullptr;
      meeting.loading = true;
      loaded = cu().cuModuleLoadData(&code, kBasicPtx);
      if (loaded == CUDA_SUCCESS) loaded = cu().cuModuleUnload(code);
    });
    // As much as may be under way without an acknowledgement, and not all of that.
    for (int i = 0; i < 300; ++i, ++count) CU_OK(add_one(other));
    loader.join();
    CU_IS(CUDA_SUCCESS, loaded);
    CU_OK(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(10 * round + 1, *meeting.word);
  }
  CU_OK(cu().cuStreamSynchronize(other));
  EXPECT_EQ(count, memory->read<std::uint32_t>()[0]);
}

// A host function that comes behind copies to the host finds them made.
TEST_F(LoadWaitsTest, CopiesToTheHostMayBeUnderWayMeanwhile) {
  const Stream stream;
  const PinnedMemory word(sizeof(std::uint32_t));
  const PinnedMemory copied(sizeof(std::uint32_t));
  struct Seen {
    const std::uint32_t* copied = nullptr;
    std::uint32_t value = 0;
  } seen;
  seen.copied = copied.as<std::uint32_t>();
  std::uint32_t count = 0;
  for (std::uint32_t round = 1; round <= 5; ++round) {
    Meeting meeting;
    meeting.word = word.as<std::uint32_t>();
    CU_OK(cu().cuLaunchHostFunc(stream, meet, &meeting));
    CU_OK(add_one(stream));
    ++count;
    CU_OK(cu().cuMemcpyDtoHAsync_v2(copied.data(), *memory, sizeof(std::uint32_t), stream));
    CU_OK(cu().cuLaunchHostFunc(
        stream,
        [](void* data) {
          auto& at = *static_cast<Seen*>(data);
          at.value = *at.copied;
        },
        &seen));
    CUmodule code = nullptr;
    meeting.loading = true;
    CU_OK(cu().cuModuleLoadData(&code, kBasicPtx));
    CU_OK(cu().cuModuleUnload(code));
    CU_OK(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(count, seen.value);
  }
}

// Other threads may post as much as they like meanwhile.
TEST_F(LoadWaitsTest, AHostFunctionEndsAlthoughNobodyElseMaySendAnything) {
  constexpr int kLaunches = 17'000;  // More than may be under way without an acknowledgement.
  constexpr int kMostOfThem = 14'000;
  const Stream stream;
  const Stream other;
  struct Burst {
    std::atomic<bool> loading{false};
    std::atomic<int> launched{0};
  } burst;
  CU_OK(cu().cuLaunchHostFunc(
      stream,
      [](void* data) {
        auto& at = *static_cast<Burst*>(data);
        // A driver that lets nobody in takes no launches meanwhile.
        const Instant until = system_clock().now() + std::chrono::seconds(5);
        while ((!at.loading || at.launched < kMostOfThem) && system_clock().now() < until) {
          std::this_thread::yield();
        }
        // lint: allow(sleep): nobody can tell when the others may send no more.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      },
      &burst));
  CUresult loaded = CUDA_ERROR_UNKNOWN;
  std::thread loader([&] {
    adopt_context();
    CUmodule code = nullptr;
    burst.loading = true;
    loaded = cu().cuModuleLoadData(&code, kBasicPtx);
    if (loaded == CUDA_SUCCESS) loaded = cu().cuModuleUnload(code);
  });
  for (int i = 0; i < kLaunches; ++i, ++burst.launched) CU_OK(add_one(other));
  loader.join();
  CU_IS(CUDA_SUCCESS, loaded);
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_OK(cu().cuStreamSynchronize(other));
  EXPECT_EQ(static_cast<std::uint32_t>(kLaunches), memory->read<std::uint32_t>()[0]);
}

TEST_F(LoadWaitsTest, ALateCopyIsNotLostWithItsContext) {
  const PinnedMemory word(sizeof(std::uint32_t));
  CUcontext another = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&another, 0, 0));
  CUstream stream = nullptr;
  CUdeviceptr there = 0;
  CU_OK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU_OK(cu().cuMemAlloc_v2(&there, sizeof(std::uint32_t)));
  Meeting meeting;
  meeting.word = word.as<std::uint32_t>();
  CU_OK(cu().cuLaunchHostFunc(stream, meet, &meeting));
  CU_OK(cu().cuMemcpyHtoDAsync_v2(there, word.data(), sizeof(std::uint32_t), stream));
  meeting.loading = true;
  CU_OK(cu().cuCtxDestroy_v2(another));
  adopt_context();
  CU_OK(add_one(nullptr));
  CU_OK(cu().cuCtxSynchronize());
}

// Copies from page-locked memory that stand behind a host function may be made only when their
// stream has come to them.
TEST_F(LoadWaitsTest, CopiesBehindAHostFunctionAreMadeMeanwhile) {
  const Stream stream;
  const PinnedMemory word(sizeof(std::uint32_t));
  for (std::uint32_t round = 1; round <= 5; ++round) {
    Meeting meeting;
    meeting.word = word.as<std::uint32_t>();
    meeting.value = 10 * round;
    CU_OK(cu().cuLaunchHostFunc(stream, meet, &meeting));
    CU_OK(cu().cuMemcpyHtoDAsync_v2(*memory, word.data(), sizeof(std::uint32_t), stream));
    CUmodule code = nullptr;
    meeting.loading = true;
    CU_OK(cu().cuModuleLoadData(&code, kBasicPtx));
    CU_OK(cu().cuModuleUnload(code));
    CU_OK(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(10 * round, memory->read<std::uint32_t>()[0]);
  }
}

}  // namespace
}  // namespace flyt::conformance
