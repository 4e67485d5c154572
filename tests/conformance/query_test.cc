// Asking again and again whether events and streams are done: what each answer stands for.
#include <memory>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

using QueryTest = ContextTest;

// More often than anything that is kept from one query to the next would last by chance.
constexpr int kAgain = 200;

void expect_unfinished(CUevent event) {
  for (int i = 0; i < kAgain; ++i) {
    ASSERT_EQ(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event)) << i;
  }
}

void expect_busy(CUstream stream) {
  for (int i = 0; i < kAgain; ++i) {
    ASSERT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream)) << i;
  }
}

bool comes_true(CUevent event) {
  return eventually([&] { return cu().cuEventQuery(event) == CUDA_SUCCESS; });
}

TEST_F(QueryTest, AnEventIsUnfinishedUntilItsWorkIsDone) {
  const Stream stream;
  const Event event;
  for (int round = 0; round < 3; ++round) {
    Gate gate;
    gate.close(stream);
    CU_OK(cu().cuEventRecord(event, stream));
    expect_unfinished(event);
    gate.open();
    EXPECT_TRUE(comes_true(event));
    CU_OK(cu().cuEventQuery(event));
  }
}

TEST_F(QueryTest, AStreamIsBusyUntilItsWorkIsDone) {
  const Stream stream;
  Gate gate;
  gate.close(stream);
  expect_busy(stream);
  gate.open();
  EXPECT_TRUE(eventually([&] { return cu().cuStreamQuery(stream) == CUDA_SUCCESS; }));
  CU_OK(cu().cuStreamQuery(stream));
}

TEST_F(QueryTest, ANewRecordIsAnotherQuestion) {
  const Stream stream;
  const Stream idle;
  const Event event;
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  expect_unfinished(event);
  CU_OK(cu().cuEventRecord(event, idle));
  EXPECT_TRUE(comes_true(event));
  CU_OK(cu().cuEventRecord(event, stream));
  expect_unfinished(event);
  gate.open();
  EXPECT_TRUE(comes_true(event));
}

TEST_F(QueryTest, WhatAnotherThreadRecordsCountsAsWell) {
  const Stream stream;
  const Stream idle;
  const Event event;
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  expect_unfinished(event);
  CUcontext context = nullptr;
  CU_OK(cu().cuCtxGetCurrent(&context));
  std::thread([&] {
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    EXPECT_EQ(CUDA_SUCCESS, cu().cuEventRecord(event, idle));
  }).join();
  EXPECT_TRUE(comes_true(event));
  gate.open();
}

TEST_F(QueryTest, WorkBehindABusyStreamIsAnotherQuestion) {
  const Stream stream;
  Gate first;
  Gate second;
  first.close(stream);
  expect_busy(stream);
  second.close(stream);
  expect_busy(stream);
  first.open();
  expect_busy(stream);
  second.open();
  EXPECT_TRUE(eventually([&] { return cu().cuStreamQuery(stream) == CUDA_SUCCESS; }));
}

// Whoever has learned that work is done never hears that what came before it is not.
TEST_F(QueryTest, EverythingBeforeFinishedWorkIsFinished) {
  const Stream stream;
  const Event first;
  const Event second;
  for (int round = 0; round < 20; ++round) {
    Gate gate;
    gate.close(stream);
    CU_OK(cu().cuEventRecord(first, stream));
    CU_OK(cu().cuEventRecord(second, stream));
    CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(first));
    CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(second));
    gate.open();
    if (round % 2 == 0) {
      CU_OK(cu().cuStreamSynchronize(stream));
      CU_OK(cu().cuStreamQuery(stream));
    } else {
      ASSERT_TRUE(comes_true(second));
    }
    CU_OK(cu().cuEventQuery(first));
  }
}

TEST_F(QueryTest, WhatFinishedWorkWaitedForIsFinished) {
  const Stream one;
  const Stream two;
  const Event first;
  const Event second;
  for (int round = 0; round < 200; ++round) {
    CU_OK(cu().cuEventRecord(first, one));
    CU_OK(cu().cuStreamWaitEvent(two, first, 0));
    CU_OK(cu().cuEventRecord(second, two));
    ASSERT_TRUE(comes_true(second));
    ASSERT_EQ(CUDA_SUCCESS, cu().cuEventQuery(first)) << round;
    CU_OK(cu().cuEventRecord(first, one));
    CU_OK(cu().cuEventSynchronize(first));
  }
}

// Whatever the stream's multiprocessors do meanwhile.
TEST_F(QueryTest, AStreamThatWasWaitedForIsNotBusy) {
  constexpr std::size_t kBytes = 1 << 16;
  const Stream stream;
  const DeviceMemory memory(kBytes);
  for (int round = 0; round < 1000; ++round) {
    CU_OK(cu().cuMemsetD8Async(memory, 1, kBytes, stream));
    CU_OK(cu().cuStreamSynchronize(stream));
    ASSERT_EQ(CUDA_SUCCESS, cu().cuStreamQuery(stream)) << round;
    CU_OK(cu().cuMemsetD8Async(memory, 2, kBytes, nullptr));
    CU_OK(cu().cuCtxSynchronize());
    ASSERT_EQ(CUDA_SUCCESS, cu().cuStreamQuery(nullptr)) << round;
    ASSERT_EQ(CUDA_SUCCESS, cu().cuStreamQuery(stream)) << round;
    CU_OK(cu().cuMemsetD8Async(memory, 3, kBytes, stream));
    ASSERT_TRUE(eventually([&] { return cu().cuStreamQuery(stream) == CUDA_SUCCESS; }));
    ASSERT_EQ(CUDA_SUCCESS, cu().cuStreamQuery(stream)) << round;
  }
}

TEST_F(QueryTest, AHostFunctionSeesWhatCameBeforeIt) {
  const Stream stream;
  const Event event;
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  static std::atomic<bool> ran;
  ran = false;
  const CUhostFn tell = [](void*) { ran = true; };
  CU_OK(cu().cuLaunchHostFunc(stream, tell, nullptr));
  expect_unfinished(event);
  gate.open();
  ASSERT_TRUE(eventually([] { return ran.load(); }));
  CU_OK(cu().cuEventQuery(event));
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(QueryTest, MoreUnfinishedEventsThanAnybodyWatches) {
  const Stream stream;
  std::vector<std::unique_ptr<Event>> events;
  Gate gate;
  gate.close(stream);
  for (int i = 0; i < 300; ++i) {
    events.push_back(std::make_unique<Event>());
    CU_OK(cu().cuEventRecord(*events.back(), stream));
  }
  for (int again = 0; again < 3; ++again) {
    for (const auto& event : events) ASSERT_EQ(CUDA_ERROR_NOT_READY, cu().cuEventQuery(*event));
  }
  gate.open();
  for (const auto& event : events) ASSERT_TRUE(comes_true(*event));
}

TEST_F(QueryTest, AnEventMayGoWhileItIsUnfinished) {
  const Stream stream;
  Gate gate;
  gate.close(stream);
  for (int i = 0; i < 100; ++i) {
    const Event event;
    CU_OK(cu().cuEventRecord(event, stream));
    CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
  }
  gate.open();
  const Event event;
  CU_OK(cu().cuEventRecord(event, stream));
  EXPECT_TRUE(comes_true(event));
}

TEST_F(QueryTest, ThreadsThatAskAboutOneEventAllLearnItsEnd) {
  const Stream stream;
  const Event event;
  CUcontext context = nullptr;
  CU_OK(cu().cuCtxGetCurrent(&context));
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  std::atomic<int> asking{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
      asking.fetch_add(1);
      EXPECT_TRUE(comes_true(event));
    });
  }
  EXPECT_TRUE(eventually([&] { return asking.load() == 4; }));
  gate.open();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(QueryTest, AnEventRecordedInACaptureIsNoLongerTheOneOfBefore) {
  const Stream stream;
  const Stream captured;
  const Event event;
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  expect_unfinished(event);
  CU_OK(cu().cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU_OK(cu().cuEventRecord(event, captured));
  CU_IS(CUDA_ERROR_CAPTURED_EVENT, cu().cuEventQuery(event));
  CUgraph graph = nullptr;
  cu().cuStreamEndCapture(captured, &graph);
  if (graph != nullptr) {
    CU_OK(cu().cuGraphDestroy(graph));
  }
  gate.open();
  CU_OK(cu().cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace flyt::conformance
