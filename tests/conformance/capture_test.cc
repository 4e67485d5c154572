// Stream capture: what becomes of the work of capturing streams, and what they refuse.
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/conformance/graphs.h"

namespace flyt::conformance {
namespace {

using CaptureTest = GraphFixture;

CUstreamCaptureStatus status_of(CUstream stream) {
  const Unrecorded quiet;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamIsCapturing(stream, &status));
  return status;
}

TEST_F(CaptureTest, CapturedWorkIsNotDoneUntilLaunched) {
  CaptureOf capture(*stream);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(*stream));
  CU_OK(store(*stream, 0, 5));
  CU_OK(add(*stream, 0));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(*stream));
  EXPECT_EQ(0u, read(0));
  const auto nodes = nodes_of(graph);
  ASSERT_EQ(2u, nodes.size());
  EXPECT_EQ(1u, dependencies_of(nodes[0]).size() + dependencies_of(nodes[1]).size());
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(6u, read(0));
}

TEST_F(CaptureTest, AnEmptyCaptureIsAnEmptyGraph) {
  CaptureOf capture(*stream);
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  EXPECT_TRUE(nodes_of(graph).empty());
  const OwnedExec exec(graph);
  CU_OK(run(exec));
}

TEST_F(CaptureTest, CopiesFillsAndHostFunctionsAreCaptured) {
  const PinnedMemory host(32);
  auto* values = host.as<std::uint32_t>();
  values[0] = 1;
  CaptureOf capture(*stream);
  CU_OK(cu().cuMemsetD32Async(word(0), 7, 4, *stream));
  CU_OK(cu().cuMemcpyHtoDAsync_v2(word(1), values, 4, *stream));
  CU_OK(cu().cuMemcpyDtoDAsync_v2(word(2), word(1), 4, *stream));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(values + 4, word(0), 16, *stream));
  CU_OK(cu().cuLaunchHostFunc(
      *stream, [](void* at) { static_cast<std::uint32_t*>(at)[3] = 33; }, values));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  const auto nodes = nodes_of(graph);
  ASSERT_EQ(5u, nodes.size());
  int kinds[3] = {};
  for (const CUgraphNode node : nodes) {
    kinds[0] += type_of(node) == CU_GRAPH_NODE_TYPE_MEMSET;
    kinds[1] += type_of(node) == CU_GRAPH_NODE_TYPE_MEMCPY;
    kinds[2] += type_of(node) == CU_GRAPH_NODE_TYPE_HOST;
  }
  EXPECT_EQ(1, kinds[0]);
  EXPECT_EQ(3, kinds[1]);
  EXPECT_EQ(1, kinds[2]);
  const OwnedExec exec(graph);
  values[0] = 2;  // Read when the graph runs.
  CU_OK(run(exec));
  EXPECT_EQ(33u, values[3]);
  EXPECT_EQ(7u, values[4]);
  EXPECT_EQ(2u, values[5]);
  EXPECT_EQ(2u, values[6]);
  EXPECT_EQ(7u, values[7]);
}

TEST_F(CaptureTest, ArgumentsAreTakenWhenTheLaunchIsCaptured) {
  CaptureOf capture(*stream);
  CUdeviceptr to = word(0);
  std::uint32_t value = 4;
  void* pointers[] = {&to, &value};
  CU_OK(cu().cuLaunchKernel(store_value, 1, 1, 1, 1, 1, 1, 0, *stream, pointers, nullptr));
  value = 5;
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(4u, read(0));
}

TEST_F(CaptureTest, AStreamThatHasJoinedAgainMayBeDestroyedMeanwhile) {
  const Event fork;
  const Event join;
  CaptureOf capture(*stream);
  CU_OK(cu().cuEventRecord(fork, *stream));
  {
    const Stream side;
    CU_OK(cu().cuStreamWaitEvent(side, fork, 0));
    CU_OK(store(side, 1, 2));
    CU_OK(cu().cuEventRecord(join, side));
    CU_OK(cu().cuStreamWaitEvent(*stream, join, 0));
  }
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(*stream));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(2u, read(1));
}

TEST_F(CaptureTest, EventsForkAndJoinStreams) {
  const Stream side;
  const Event fork;
  const Event join;
  CaptureOf capture(*stream);
  CU_OK(store(*stream, 0, 1));
  CU_OK(cu().cuEventRecord(fork, *stream));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(side));
  CU_OK(cu().cuStreamWaitEvent(side, fork, 0));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(side));
  CU_OK(store(side, 1, 2));
  CU_OK(store(*stream, 2, 3));
  CU_OK(cu().cuEventRecord(join, side));
  CU_OK(cu().cuStreamWaitEvent(*stream, join, 0));
  CU_OK(cu().cuMemcpyDtoDAsync_v2(word(3), word(1), 4, *stream));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(side));
  const auto nodes = nodes_of(graph);
  ASSERT_EQ(4u, nodes.size());
  int joined = 0;
  for (const CUgraphNode node : nodes) joined += dependencies_of(node).size() == 2;
  EXPECT_EQ(1, joined);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 2, 3, 2}), memory->read<std::uint32_t>());
}

TEST_F(CaptureTest, AForkThatIsNotJoinedFailsTheCapture) {
  const Stream side;
  const Event fork;
  CaptureOf capture(*stream);
  CU_OK(store(*stream, 0, 1));
  CU_OK(cu().cuEventRecord(fork, *stream));
  CU_OK(cu().cuStreamWaitEvent(side, fork, 0));
  CU_OK(store(side, 1, 2));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, capture.end_without_graph());
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(*stream));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(side));
  CU_OK(store(side, 1, 3));
  CU_OK(cu().cuStreamSynchronize(side));
  EXPECT_EQ(3u, read(1));
}

TEST_F(CaptureTest, ACaptureEndsInTheStreamWhereItBegan) {
  const Stream side;
  const Event fork;
  CaptureOf capture(*stream);
  CU_OK(cu().cuEventRecord(fork, *stream));
  CU_OK(cu().cuStreamWaitEvent(side, fork, 0));
  CUgraph graph = nullptr;
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cu().cuStreamEndCapture(side, &graph));
}

TEST_F(CaptureTest, EndingWhatHasNotBegunIsIllegal) {
  CUgraph graph = nullptr;
  CU_IS(CUDA_ERROR_ILLEGAL_STATE, cu().cuStreamEndCapture(*stream, &graph));
}

TEST_F(CaptureTest, BeginningChecksItsArguments) {
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuStreamBeginCapture_v2(*stream, static_cast<CUstreamCaptureMode>(3)));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        cu().cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
}

TEST_F(CaptureTest, ACapturingStreamCannotBeginAnother) {
  CaptureOf capture(*stream);
  CU_IS(CUDA_ERROR_ILLEGAL_STATE,
        cu().cuStreamBeginCapture_v2(*stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

TEST_F(CaptureTest, WaitingForACapturingStreamInvalidatesTheCapture) {
  CaptureOf capture(*stream);
  CU_OK(store(*stream, 0, 1));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status_of(*stream));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, store(*stream, 0, 2));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(*stream));
  CU_OK(store(*stream, 0, 3));
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(3u, read(0));
}

TEST_F(CaptureTest, AskingACapturingStreamInvalidatesTheCapture) {
  CaptureOf capture(*stream);
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu().cuStreamQuery(*stream));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
}

TEST_F(CaptureTest, WaitingForTheContextInvalidatesTheCapture) {
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu().cuCtxSynchronize());
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
}

TEST_F(CaptureTest, CapturedEventsCannotBeAskedOrWaitedFor) {
  const Event event;
  {
    CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CU_OK(cu().cuEventRecord(event, *stream));
    CU_IS(CUDA_ERROR_CAPTURED_EVENT, cu().cuEventQuery(event));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
  }
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CU_OK(cu().cuEventRecord(event, *stream));
  CU_IS(CUDA_ERROR_CAPTURED_EVENT, cu().cuEventSynchronize(event));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
  CU_OK(cu().cuEventRecord(event, *stream));
  CU_OK(cu().cuEventSynchronize(event));
}

TEST_F(CaptureTest, WaitingForUncapturedWorkIsRefused) {
  const Stream other;
  const Event event;
  CU_OK(cu().cuEventRecord(event, other));
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cu().cuStreamWaitEvent(*stream, event, 0));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
}

TEST_F(CaptureTest, CapturesCannotBeMerged) {
  const Stream other;
  const Event event;
  CaptureOf first(*stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CaptureOf second(other, CU_STREAM_CAPTURE_MODE_RELAXED);
  CU_OK(store(*stream, 0, 1));
  CU_OK(cu().cuEventRecord(event, *stream));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cu().cuStreamWaitEvent(other, event, 0));
}

TEST_F(CaptureTest, TheLegacyStreamIsBarredWhileABlockingStreamCaptures) {
  const Stream blocking(CU_STREAM_DEFAULT);
  CaptureOf capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu().cuStreamIsCapturing(nullptr, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(blocking));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, store(nullptr, 0, 1));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
  CU_OK(store(nullptr, 0, 2));
  CU_OK(cu().cuStreamSynchronize(nullptr));
  EXPECT_EQ(2u, read(0));
}

TEST_F(CaptureTest, TheLegacyStreamIsFreeWhileANonBlockingStreamCaptures) {
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CU_OK(store(nullptr, 0, 8));
  CU_OK(cu().cuStreamSynchronize(nullptr));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  EXPECT_EQ(8u, read(0));
}

// Its own mode forbids nothing to it: it is work of the legacy stream.
TEST_F(CaptureTest, ABlockingCopyOrFillIsDoneWhileANonBlockingStreamCaptures) {
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  std::uint32_t value = 6;
  CU_OK(cu().cuMemcpyHtoD_v2(word(0), &value, sizeof value));
  CU_OK(cu().cuMemcpyDtoD_v2(word(1), word(0), sizeof value));
  CU_OK(cu().cuMemsetD32_v2(word(2), 7, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(0, &value, sizeof value));
  CU_OK(cu().cuMemcpyDtoH_v2(&value, word(1), sizeof value));
  EXPECT_EQ(6u, value);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(*stream));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  EXPECT_TRUE(nodes_of(graph).empty());
  EXPECT_EQ(7u, read(2));
}

TEST_F(CaptureTest, WorkOfTheLegacyStreamIsRefusedBeforeItIsLookedAt) {
  CUdeviceptr managed = 0;
  CU_OK(cu().cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, device};
  std::uint32_t value = 6;
  unsigned long long id = 0;
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return cu().cuMemcpyHtoD_v2(word(0), &value, 0); },
      [&] { return cu().cuMemcpyHtoD_v2(0, &value, 4); },
      [&] { return cu().cuMemsetD8_v2(word(0), 1, 0); },
      [&] { return cu().cuMemsetD32_v2(word(0) + 1, 1, 1); },
      [&] { return cu().cuMemPrefetchAsync_v2(managed, 64, here, 0, nullptr); },
      [&] { return cu().cuStreamAttachMemAsync(nullptr, managed, 0, CU_MEM_ATTACH_GLOBAL); },
      [&] { return cu().cuStreamGetId(nullptr, &id); },
  };
  const Stream blocking(CU_STREAM_DEFAULT);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    CaptureOf capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, calls[i]());
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status_of(blocking));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
  }
  CU_OK(cu().cuMemFree_v2(managed));
}

TEST_F(CaptureTest, WhatMayWaitForAllWorkIsUnsafe) {
  CUdeviceptr managed = 0;
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = here;
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuDeviceGetDefaultMemPool(&pool, device));
  CUmodule module = nullptr;
  CU_OK(cu().cuModuleLoadData(&module, ".version 8.0\n.target sm_70\n.address_size 64\n"));
  const OwnedGraph graph;
  const Stream side;
  const unsigned one = 1;
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return cu().cuMemFree_v2(0); },
      [&] { return cu().cuMemFreeHost(nullptr); },
      [&] { return cu().cuMemAllocManaged(&address, 64, CU_MEM_ATTACH_GLOBAL); },
      [&] { return cu().cuMemAllocAsync(&address, 64, side); },
      [&] { return cu().cuMemAllocAsync(&address, 64, nullptr); },
      [&] {
        CUmemoryPool made = nullptr;
        return cu().cuMemPoolCreate(&made, &properties);
      },
      [&] { return cu().cuMemPoolTrimTo(pool, 0); },
      [&] { return cu().cuMemAdvise_v2(managed, 64, CU_MEM_ADVISE_SET_READ_MOSTLY, here); },
      [&] { return cu().cuStreamAttachMemAsync(nullptr, managed, 0, CU_MEM_ATTACH_GLOBAL); },
      [&] { return cu().cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, word(0)); },
      [&] { return cu().cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048); },
      [&] { return cu().cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE); },
      [&] { return cu().cuModuleUnload(module); },
      [&] {
        CUgraphExec made = nullptr;
        return cu().cuGraphInstantiateWithFlags(&made, graph, 0);
      },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, calls[i]());
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status_of(*stream));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
  }
  CU_OK(cu().cuModuleUnload(module));
  CU_OK(cu().cuMemFree_v2(managed));
}

TEST_F(CaptureTest, UnsafeCallsOfTheCapturingThreadAreRefused) {
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    CaptureOf capture(*stream, mode);
    CUdeviceptr address = 0;
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu().cuMemAlloc_v2(&address, 64));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
  }
}

TEST_F(CaptureTest, RelaxedCapturesPermitUnsafeCalls) {
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemAlloc_v2(&address, 64));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  CU_OK(cu().cuMemFree_v2(address));
}

TEST_F(CaptureTest, AThreadMayPermitItselfUnsafeCalls) {
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUdeviceptr address = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CU_OK(cu().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
  EXPECT_EQ(CUDA_SUCCESS, cu().cuMemAlloc_v2(&address, 64));
  CU_OK(cu().cuThreadExchangeStreamCaptureMode(&mode));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  CU_OK(cu().cuMemFree_v2(address));
}

// What a thread of mode `thread` gets for an unsafe call while another one captures.
CUresult unsafe_beside(CUcontext context, CUstreamCaptureMode thread) {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    cu().cuCtxSetCurrent(context);
    CUstreamCaptureMode mode = thread;
    cu().cuThreadExchangeStreamCaptureMode(&mode);
    CUdeviceptr address = 0;
    result = cu().cuMemAlloc_v2(&address, 64);
    if (result == CUDA_SUCCESS) cu().cuMemFree_v2(address);
  }).join();
  return result;
}

TEST_F(CaptureTest, GlobalCapturesForbidUnsafeCallsOfOtherThreads) {
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CU_IS(CUDA_SUCCESS, unsafe_beside(context, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        unsafe_beside(context, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
}

TEST_F(CaptureTest, AThreadHearsThatAnotherHasEndedItsOwnStreamsCapture) {
  CaptureOf capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        unsafe_beside(context, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status_of(CU_STREAM_PER_THREAD));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
}

TEST_F(CaptureTest, AFreeIsUnsafeAlsoOfWhatCannotBeFreed) {
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu().cuMemFree_v2(word(0) + 1));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
}

TEST_F(CaptureTest, ThreadLocalCapturesIgnoreOtherThreads) {
  CaptureOf capture(*stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CU_IS(CUDA_SUCCESS, unsafe_beside(context, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
}

TEST_F(CaptureTest, OnlyARelaxedCaptureMayEndInAnotherThread) {
  CUgraph captured = nullptr;
  CUresult result = CUDA_SUCCESS;
  const auto end_elsewhere = [&] {
    std::thread([&] {
      cu().cuCtxSetCurrent(context);
      result = cu().cuStreamEndCapture(*stream, &captured);
    }).join();
    return result;
  };
  CU_OK(cu().cuStreamBeginCapture_v2(*stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU_OK(store(*stream, 0, 1));
  captured = reinterpret_cast<CUgraph>(5);
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, end_elsewhere());
  EXPECT_EQ(nullptr, captured);
  // It has ended all the same.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  CU_OK(cu().cuStreamIsCapturing(*stream, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  CU_IS(CUDA_ERROR_ILLEGAL_STATE, cu().cuStreamEndCapture(*stream, &captured));
  CU_OK(cu().cuStreamBeginCapture_v2(*stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU_OK(end_elsewhere());
  CU_OK(cu().cuGraphDestroy(captured));
}

TEST_F(CaptureTest, InfoNamesTheGraphAndTheFrontier) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 9;
  CaptureOf capture(*stream);
  CU_OK(cu().cuStreamGetCaptureInfo_v3(*stream, &status, &id, &graph, &nodes, &edges, &count));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_NE(0u, id);
  EXPECT_EQ(0u, count);
  const cuuint64_t first = id;
  CU_OK(store(*stream, 0, 1));
  CU_OK(cu().cuStreamGetCaptureInfo_v2(*stream, &status, &id, &graph, &nodes, &count));
  EXPECT_EQ(first, id);
  ASSERT_EQ(1u, count);
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_KERNEL, type_of(nodes[0]));
  EXPECT_EQ((std::vector<CUgraphNode>{nodes[0]}), nodes_of(graph));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph owned(captured);
  EXPECT_EQ(graph, captured);
  CU_OK(cu().cuStreamGetCaptureInfo(*stream, &status, &id));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamGetCaptureInfo(*stream, nullptr, &id));
}

TEST_F(CaptureTest, TheFrontierCanBeChanged) {
  CaptureOf capture(*stream);
  CU_OK(store(*stream, 0, 1));
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  CU_OK(cu().cuStreamGetCaptureInfo_v2(*stream, &status, nullptr, &graph, nullptr, nullptr));
  CUgraphNode mine = nullptr;
  CU_OK(add_store(graph, {}, 1, 2, &mine));
  CU_OK(cu().cuStreamUpdateCaptureDependencies(*stream, &mine, 1,
                                               CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  CU_OK(store(*stream, 2, 3));
  CU_OK(cu().cuStreamUpdateCaptureDependencies(*stream, &mine, 1,
                                               CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CU_OK(store(*stream, 3, 4));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph owned(captured);
  const auto nodes = nodes_of(owned);
  ASSERT_EQ(4u, nodes.size());
  std::size_t edges = 0;
  for (const CUgraphNode node : nodes) edges += dependencies_of(node).size();
  EXPECT_EQ(3u, edges);
  const OwnedExec exec(owned);
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 2, 3, 4}), memory->read<std::uint32_t>());
}

TEST_F(CaptureTest, WorkCanBeCapturedIntoAGraphThatIsThere) {
  const OwnedGraph graph;
  CUgraphNode first = nullptr;
  CU_OK(add_store(graph, {}, 0, 4, &first));
  CU_OK(cu().cuStreamBeginCaptureToGraph(*stream, graph, &first, nullptr, 1,
                                         CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(CUDA_SUCCESS, add(*stream, 0));
  CUgraph captured = nullptr;
  CU_OK(cu().cuStreamEndCapture(*stream, &captured));
  EXPECT_EQ(static_cast<CUgraph>(graph), captured);
  EXPECT_EQ(2u, nodes_of(graph).size());
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(5u, read(0));
}

TEST_F(CaptureTest, AGraphLaunchIsNotCaptured) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_add(graph, {}, 0, &node));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  CaptureOf capture(*stream);
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu().cuGraphLaunch(exec, *stream));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, capture.end_without_graph());
  EXPECT_EQ(1u, read(0));
  CU_OK(run(exec));
  EXPECT_EQ(2u, read(0));
}

TEST_F(CaptureTest, ExternalEventsBecomeNodes) {
  const Event event;
  CaptureOf capture(*stream);
  CU_OK(store(*stream, 0, 1));
  CU_OK(cu().cuEventRecordWithFlags(event, *stream, CU_EVENT_RECORD_EXTERNAL));
  CU_OK(cu().cuStreamWaitEvent(*stream, event, CU_EVENT_WAIT_EXTERNAL));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  const auto nodes = nodes_of(graph);
  ASSERT_EQ(3u, nodes.size());
  int kinds = 0;
  for (const CUgraphNode node : nodes) {
    kinds += type_of(node) == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    kinds += type_of(node) == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  }
  EXPECT_EQ(2, kinds);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  CU_IS(CUDA_SUCCESS, cu().cuEventQuery(event));
}

TEST_F(CaptureTest, CapturesOfManyThreadsAreIndependent) {
  constexpr unsigned kThreads = 4;
  std::atomic<unsigned> good{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Unrecorded quiet;
      cu().cuCtxSetCurrent(context);
      const Stream own;
      bool ok = true;
      for (unsigned round = 0; round < 20; ++round) {
        CaptureOf capture(own);
        for (unsigned k = 0; k < 5; ++k) ok = ok && add(own, i) == CUDA_SUCCESS;
        CUgraph captured = nullptr;
        ok = ok && capture.end(&captured) == CUDA_SUCCESS;
        const OwnedGraph graph(captured);
        const OwnedExec exec(graph);
        ok = ok && cu().cuGraphLaunch(exec, own) == CUDA_SUCCESS;
      }
      ok = ok && cu().cuStreamSynchronize(own) == CUDA_SUCCESS;
      good += ok ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(kThreads, good.load());
  EXPECT_EQ((std::vector<std::uint32_t>(4, 100)), memory->read<std::uint32_t>());
}

}  // namespace
}  // namespace flyt::conformance
