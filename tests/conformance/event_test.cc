// Events: recording, waiting, timing, and their refusals.
#include <memory>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

using EventTest = ContextTest;

TEST_F(EventTest, CreationChecksItsFlags) {
  CUevent event = nullptr;
  CU_OK(cu().cuEventCreate(&event, CU_EVENT_DEFAULT));
  CU_OK(cu().cuEventDestroy_v2(event));
  CU_OK(cu().cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  CU_OK(cu().cuEventDestroy_v2(event));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuEventCreate(nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuEventCreate(&event, 8));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuEventCreate(&event, 16));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuEventCreate(&event, 0x100));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuEventCreate(&event, CU_EVENT_INTERPROCESS));
}

TEST_F(EventTest, AnEventNeverRecordedIsComplete) {
  const Event event;
  CU_IS(CUDA_SUCCESS, cu().cuEventQuery(event));
  CU_IS(CUDA_SUCCESS, cu().cuEventSynchronize(event));
}

TEST_F(EventTest, QueryFollowsTheWorkBeforeIt) {
  const Stream stream;
  const Event event;
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
  gate.open();
  CU_OK(cu().cuEventSynchronize(event));
  CU_IS(CUDA_SUCCESS, cu().cuEventQuery(event));
}

TEST_F(EventTest, AnEventRecordedTwiceStandsForTheLastTime) {
  const Stream stream;
  const Event event;
  CU_OK(cu().cuEventRecord(event, stream));
  CU_OK(cu().cuEventSynchronize(event));
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
  gate.open();
  CU_OK(cu().cuEventSynchronize(event));
}

TEST_F(EventTest, AStreamWaitsForAnotherStreamsEvent) {
  const Stream first;
  const Stream second;
  const Event event;
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  const CUfunction add = module.function("add_one");
  const DeviceMemory memory(4);
  memory.fill(0);
  Gate gate;
  gate.close(first);
  CU_OK(launch(store, 1, 1, first, static_cast<CUdeviceptr>(memory), 10u));
  CU_OK(cu().cuEventRecord(event, first));
  CU_OK(cu().cuStreamWaitEvent(second, event, 0));
  CU_OK(launch(add, 1, 32, second, static_cast<CUdeviceptr>(memory), 1u));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(second));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(second));
  EXPECT_EQ(11u, memory.read<std::uint32_t>()[0]);
}

TEST_F(EventTest, AWaitUsesTheRecordThatWasThere) {
  const Stream first;
  const Stream second;
  const Event event;
  CU_OK(cu().cuEventRecord(event, first));
  CU_OK(cu().cuStreamWaitEvent(second, event, 0));
  Gate gate;
  gate.close(first);
  CU_OK(cu().cuEventRecord(event, first));
  CU_OK(cu().cuStreamSynchronize(second));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(first));
}

TEST_F(EventTest, ElapsedTimeIsPositiveForwardAndNegativeBackward) {
  const Stream stream;
  const Event start;
  const Event end;
  const DeviceMemory memory(1 << 20);
  CU_OK(cu().cuEventRecord(start, stream));
  CU_OK(cu().cuMemsetD8Async(memory, 1, 1 << 20, stream));
  CU_OK(cu().cuEventRecord(end, stream));
  CU_OK(cu().cuEventSynchronize(end));
  float forward = -1;
  float backward = 1;
  CU_OK(cu().cuEventElapsedTime(&forward, start, end));
  CU_OK(cu().cuEventElapsedTime(&backward, end, start));
  EXPECT_GE(forward, 0.0f);
  EXPECT_LT(forward, 20000.0f);
  EXPECT_LE(backward, 0.0f);
}

TEST_F(EventTest, ElapsedTimeNeedsRecordedTimingEvents) {
  const Stream stream;
  const Event recorded;
  const Event never;
  const Event untimed(CU_EVENT_DISABLE_TIMING);
  CU_OK(cu().cuEventRecord(recorded, stream));
  CU_OK(cu().cuEventRecord(untimed, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  float time = 0;
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventElapsedTime(&time, recorded, never));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventElapsedTime(&time, never, recorded));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventElapsedTime(&time, recorded, untimed));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventElapsedTime(nullptr, recorded, recorded));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventElapsedTime(&time, nullptr, recorded));
}

TEST_F(EventTest, ElapsedTimeOfUnfinishedWorkIsNotReady) {
  const Stream stream;
  const Event start;
  const Event end;
  CU_OK(cu().cuEventRecord(start, stream));
  CU_OK(cu().cuEventSynchronize(start));
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(end, stream));
  float time = 0;
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventElapsedTime(&time, start, end));
  gate.open();
  CU_OK(cu().cuEventSynchronize(end));
}

TEST_F(EventTest, NullEventsAreInvalidHandles) {
  const Stream stream;
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventRecord(nullptr, stream));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventQuery(nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventSynchronize(nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuEventDestroy_v2(nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamWaitEvent(stream, nullptr, 0));
}

TEST_F(EventTest, ExternalFlagsOutsideACaptureAreIllegal) {
  const Stream stream;
  const Event event;
  CU_IS(CUDA_ERROR_ILLEGAL_STATE, cu().cuEventRecordWithFlags(event, stream, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuEventRecordWithFlags(event, stream, 2));
  CU_IS(CUDA_ERROR_ILLEGAL_STATE, cu().cuStreamWaitEvent(stream, event, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamWaitEvent(stream, event, 4));
  CU_IS(CUDA_SUCCESS, cu().cuEventRecordWithFlags(event, stream, 0));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
}

TEST_F(EventTest, DestroyingAnEventInUseIsFine) {
  const Stream stream;
  CUevent event = nullptr;
  CU_OK(cu().cuEventCreate(&event, 0));
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventRecord(event, stream));
  CU_OK(cu().cuEventDestroy_v2(event));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(EventTest, ThousandsOfEventsLive) {
  const Stream stream;
  std::vector<CUevent> events(3000);
  for (CUevent& event : events) {
    CU_OK(cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU_OK(cu().cuEventRecord(event, stream));
  }
  CU_OK(cu().cuStreamSynchronize(stream));
  for (const CUevent event : events) {
    CU_IS(CUDA_SUCCESS, cu().cuEventQuery(event));
    CU_OK(cu().cuEventDestroy_v2(event));
  }
}

// Allocators ask from threads that never used the GPU.
TEST_F(EventTest, AThreadWithoutAContextMayAskAndWait) {
  const Stream stream;
  const Event first;
  const Event second;
  CU_OK(cu().cuEventRecord(first, stream));
  CU_OK(cu().cuEventRecord(second, stream));
  std::thread([&] {
    EXPECT_EQ(CUDA_SUCCESS, cu().cuEventSynchronize(second));
    EXPECT_EQ(CUDA_SUCCESS, cu().cuEventQuery(first));
    float milliseconds = -1;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuEventElapsedTime(&milliseconds, first, second));
    EXPECT_GE(milliseconds, 0);
    CUcontext current = context;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxGetCurrent(&current));
    EXPECT_EQ(nullptr, current);
  }).join();
}

// A context of its own with a gate in it: what is held back elsewhere still lets it open.
class ElsewhereTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    CU_OK(cu().cuCtxCreate_v2(&elsewhere, 0, device));
    CU_OK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU_OK(cu().cuEventCreate(&event, 0));
    gate = std::make_unique<Gate>();
    gate->close(stream);
    CU_OK(cu().cuEventRecord(event, stream));
    CU_OK(cu().cuCtxSetCurrent(context));
  }
  void TearDown() override {
    CU_OK(cu().cuCtxSetCurrent(elsewhere));
    gate.reset();
    CU_OK(cu().cuStreamSynchronize(stream));
    CU_OK(cu().cuCtxDestroy_v2(elsewhere));
  }
  CUcontext elsewhere = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  std::unique_ptr<Gate> gate;
};

TEST_F(ElsewhereTest, AContextWaitsForAnEventWithAllItsStreams) {
  const Stream before;
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  const DeviceMemory memory(12);
  CU_OK(cu().cuCtxWaitEvent(context, event));
  CUstream after = nullptr;
  CU_OK(cu().cuStreamCreate(&after, CU_STREAM_NON_BLOCKING));
  CU_OK(launch(store, 1, 1, before, CUdeviceptr{memory}, 1u));
  CU_OK(launch(store, 1, 1, after, CUdeviceptr{memory + 4}, 2u));
  CU_OK(launch(store, 1, 1, nullptr, CUdeviceptr{memory + 8}, 3u));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(before));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(after));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(nullptr));
  gate->open();
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ((std::vector<std::uint32_t>{1, 2, 3}), memory.read<std::uint32_t>());
  CU_OK(cu().cuStreamDestroy_v2(after));
}

TEST_F(ElsewhereTest, AnEventOfAnotherContextIsNotRecordedForThisOne) {
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuCtxRecordEvent(context, event));
  gate->open();
}

TEST_F(EventTest, AnEventOfAContextStandsForAllItsStreams) {
  const Stream first;
  const Stream second;
  const Event event;
  Gate one;
  Gate other;
  one.close(first);
  other.close(second);
  CU_OK(cu().cuCtxRecordEvent(context, event));
  one.open();
  CU_OK(cu().cuStreamSynchronize(first));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
  other.open();
  CU_OK(cu().cuEventSynchronize(event));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(second));
}

TEST_F(EventTest, AContextThatRecordsOrWaitsIsNamed) {
  if (!cu().cuCtxRecordEvent.present()) GTEST_SKIP() << "an older driver";
  const Event event;
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxRecordEvent(nullptr, event));
  CU_OK(cu().cuEventRecord(event, nullptr));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxWaitEvent(nullptr, event));
}

TEST_F(EventTest, AnEventOfAContextStandsForNothingLater) {
  const Stream stream;
  const Event event;
  CU_OK(cu().cuCtxRecordEvent(context, event));
  Gate gate;
  gate.close(stream);
  CU_OK(cu().cuEventSynchronize(event));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
  gate.open();
}

}  // namespace
}  // namespace flyt::conformance
