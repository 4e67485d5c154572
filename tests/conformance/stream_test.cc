// Streams: creation, properties, order, and the waits on values.
#include <dlfcn.h>

#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

using StreamTest = ContextTest;

TEST_F(StreamTest, CreatesChecksFlagsAndDestroys) {
  CUstream stream = nullptr;
  CU_OK(cu().cuStreamCreate(&stream, 0));
  EXPECT_NE(nullptr, stream);
  CU_OK(cu().cuStreamDestroy_v2(stream));
  CU_OK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU_OK(cu().cuStreamDestroy_v2(stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamCreate(&stream, 2));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamCreate(nullptr, 0));
}

TEST_F(StreamTest, DefaultStreamsCannotBeDestroyed) {
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamDestroy_v2(nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamDestroy_v2(CU_STREAM_LEGACY));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamDestroy_v2(CU_STREAM_PER_THREAD));
}

TEST_F(StreamTest, PrioritiesAreClampedToTheRange) {
  int least = 0;
  int greatest = 0;
  CU_OK(cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  CUstream stream = nullptr;
  int priority = 99;
  CU_OK(cu().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
  CU_OK(cu().cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(greatest, priority);
  CU_OK(cu().cuStreamDestroy_v2(stream));
  CU_OK(cu().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 100));
  CU_OK(cu().cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(least, priority);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamGetPriority(stream, nullptr));
  CU_OK(cu().cuStreamDestroy_v2(stream));
  CU_OK(cu().cuStreamGetPriority(nullptr, &priority));
  EXPECT_EQ(0, priority);
}

TEST_F(StreamTest, FlagsAreWhatWasAskedFor) {
  const Stream blocking(CU_STREAM_DEFAULT);
  const Stream non_blocking(CU_STREAM_NON_BLOCKING);
  unsigned flags = 9;
  CU_OK(cu().cuStreamGetFlags(blocking, &flags));
  EXPECT_EQ(0u, flags);
  CU_OK(cu().cuStreamGetFlags(non_blocking, &flags));
  EXPECT_EQ(1u, flags);
  CU_OK(cu().cuStreamGetFlags(nullptr, &flags));
  EXPECT_EQ(0u, flags);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamGetFlags(blocking, nullptr));
}

TEST_F(StreamTest, IdsAreUniqueAndTheDefaultIsLegacy) {
  const Stream first;
  const Stream second;
  unsigned long long id_first = 0;
  unsigned long long id_second = 0;
  CU_OK(cu().cuStreamGetId(first, &id_first));
  CU_OK(cu().cuStreamGetId(second, &id_second));
  EXPECT_NE(id_first, id_second);
  unsigned long long id_default = 0;
  unsigned long long id_legacy = 1;
  CU_OK(cu().cuStreamGetId(nullptr, &id_default));
  CU_OK(cu().cuStreamGetId(CU_STREAM_LEGACY, &id_legacy));
  EXPECT_EQ(id_default, id_legacy);
  CU_OK(cu().cuStreamGetId(CU_STREAM_PER_THREAD, &id_legacy));
  EXPECT_NE(id_default, id_legacy);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamGetId(first, nullptr));
}

TEST_F(StreamTest, AStreamKnowsItsContextAndDevice) {
  const Stream stream;
  CUcontext owner = nullptr;
  CUgreenCtx green = reinterpret_cast<CUgreenCtx>(1);
  CUdevice found = -1;
  CU_OK(cu().cuStreamGetCtx(stream, &owner));
  EXPECT_EQ(context, owner);
  owner = nullptr;
  CU_OK(cu().cuStreamGetCtx_v2(stream, &owner, &green));
  EXPECT_EQ(context, owner);
  EXPECT_EQ(nullptr, green);
  CU_OK(cu().cuStreamGetCtx_v2(nullptr, &owner, &green));
  EXPECT_EQ(context, owner);
  CU_IS(CUDA_SUCCESS, cu().cuStreamGetCtx_v2(stream, nullptr, &green));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamGetCtx(stream, nullptr));
  CU_OK(cu().cuStreamGetDevice(stream, &found));
  EXPECT_EQ(device, found);
}

TEST_F(StreamTest, QueryTellsNotReadyUntilTheWorkIsDone) {
  const Stream stream;
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(stream));
  Gate gate;
  gate.close(stream);
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(stream));
}

TEST_F(StreamTest, StreamsRunIndependently) {
  const Stream blocked;
  const Stream free_running;
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  const DeviceMemory out(4);
  Gate gate;
  gate.close(blocked);
  CU_OK(launch(store, 1, 1, free_running, static_cast<CUdeviceptr>(out), 3u));
  CU_OK(cu().cuStreamSynchronize(free_running));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(blocked));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(blocked));
  EXPECT_EQ(3u, out.read<std::uint32_t>()[0]);
}

TEST_F(StreamTest, ADestroyedStreamFinishesItsWork) {
  CUstream stream = nullptr;
  CU_OK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  const DeviceMemory out(4);
  out.fill(0);
  {
    Gate gate;
    gate.close(stream);
    CU_OK(launch(store, 1, 1, stream, static_cast<CUdeviceptr>(out), 8u));
    CU_OK(cu().cuStreamDestroy_v2(stream));
    gate.open();
  }
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(8u, out.read<std::uint32_t>()[0]);
}

TEST_F(StreamTest, AnExplicitStreamNeedsNoCurrentContext) {
  const Stream stream;
  const DeviceMemory memory(4);
  const PinnedMemory word(4);
  *word.as<std::uint32_t>() = 6;
  std::thread([&] {
    CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(stream));
    CU_IS(CUDA_SUCCESS, cu().cuMemcpyHtoDAsync_v2(memory, word.data(), 4, stream));
    CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuStreamSynchronize(nullptr));
  }).join();
  EXPECT_EQ(6u, memory.read<std::uint32_t>()[0]);
}

TEST_F(StreamTest, ContextSynchronizeWaitsForEveryStream) {
  const Stream first;
  const Stream second;
  const Event done;
  const DeviceMemory memory(1 << 20);
  CU_OK(cu().cuMemsetD8Async(memory, 1, 1 << 20, first));
  CU_OK(cu().cuMemsetD8Async(memory, 2, 1 << 20, second));
  CU_OK(cu().cuEventRecord(done, second));
  CU_OK(cu().cuCtxSynchronize());
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(first));
  CU_IS(CUDA_SUCCESS, cu().cuStreamQuery(second));
  CU_IS(CUDA_SUCCESS, cu().cuEventQuery(done));
}

TEST_F(StreamTest, ValuesAreWrittenInStreamOrder) {
  const Stream stream;
  const DeviceMemory memory(16);
  memory.fill(0);
  CU_OK(cu().cuStreamWriteValue32_v2(stream, memory, 5, 0));
  CU_OK(cu().cuStreamWriteValue64_v2(stream, memory + 8, 0x123456789abcdefull, 0));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(5u, memory.read<std::uint64_t>()[0]);
  EXPECT_EQ(0x123456789abcdefull, memory.read<std::uint64_t>()[1]);
}

TEST_F(StreamTest, AWaitForAValueHoldsTheStream) {
  const Stream waiting;
  const Stream writing;
  const DeviceMemory memory(8);
  memory.fill(0);
  CU_OK(cu().cuStreamWaitValue32_v2(waiting, memory, 3, CU_STREAM_WAIT_VALUE_GEQ));
  CU_OK(cu().cuStreamWriteValue32_v2(waiting, memory + 4, 9, 0));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(waiting));
  CU_OK(cu().cuStreamWriteValue32_v2(writing, memory, 4, 0));
  CU_OK(cu().cuStreamSynchronize(waiting));
  EXPECT_EQ(9u, memory.read<std::uint32_t>()[1]);
}

TEST_F(StreamTest, ValueOperationsCheckTheirArguments) {
  const Stream stream;
  const DeviceMemory memory(16);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamWriteValue32_v2(stream, memory + 1, 5, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamWriteValue32_v2(stream, 0x1234, 5, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamWriteValue64_v2(stream, memory + 4, 5, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamWaitValue32_v2(stream, memory, 5, 9));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamWaitValue32_v2(stream, memory, 5, ~0u));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
}

TEST_F(StreamTest, TheFirstValueOperationsAreNotSupported) {
  Call<decltype(driver::Table::cuStreamWriteValue32)> write{"cuStreamWriteValue32"};
  Call<decltype(driver::Table::cuStreamBatchMemOp)> batch{"cuStreamBatchMemOp"};
  write.bind(::dlsym(cu().library, write.name()));
  batch.bind(::dlsym(cu().library, batch.name()));
  if (!write.present()) GTEST_SKIP() << "a newer driver";
  const DeviceMemory memory(16);
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, write(nullptr, memory, 5, 0));
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, batch(nullptr, 0, nullptr, 0));
}

TEST_F(StreamTest, WordsAreInMemoryThatOneDriverCallGave) {
  const Stream stream;
  CUdeviceptr pooled = 0;
  CUdeviceptr managed = 0;
  CU_OK(cu().cuMemAllocAsync(&pooled, 16, stream));
  CU_OK(cu().cuMemAllocManaged(&managed, 16, CU_MEM_ATTACH_GLOBAL));
  for (const CUdeviceptr address : {pooled, managed}) {
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamWriteValue32_v2(stream, address, 5, 0));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamWaitValue64_v2(stream, address, 5, 0));
  }
  CU_OK(cu().cuMemFreeAsync(pooled, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_OK(cu().cuMemFree_v2(managed));
}

TEST_F(StreamTest, AWriteTakesNoFlags) {
  const Stream stream;
  const DeviceMemory memory(16);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuStreamWriteValue32_v2(stream, memory, 5, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(StreamTest, ABatchMayHoldBarriers) {
  const Stream stream;
  const DeviceMemory memory(16);
  memory.fill(0);
  CUstreamBatchMemOpParams batch[3] = {};
  batch[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[0].writeValue.address = memory;
  batch[0].writeValue.value = 3;
  batch[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  batch[1].memoryBarrier.flags = CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
  batch[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[2].waitValue.address = memory;
  batch[2].waitValue.value = 3;
  batch[2].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CU_OK(cu().cuStreamBatchMemOp_v2(stream, 3, batch, 0));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(3u, memory.read<std::uint32_t>()[0]);
  CU_OK(cu().cuStreamBatchMemOp_v2(stream, 1, batch + 1, 0));
  batch[1].memoryBarrier.flags = 2;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamBatchMemOp_v2(stream, 3, batch, 0));
  batch[1].operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuStreamBatchMemOp_v2(stream, 3, batch, 0));
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(StreamTest, CaptureQueriesSayNo) {
  const Stream stream;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  CU_OK(cu().cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  CU_OK(cu().cuStreamIsCapturing(nullptr, &status));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamIsCapturing(stream, nullptr));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CU_OK(cu().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
  CU_OK(cu().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
}

TEST_F(StreamTest, AnAccessWindowIsKept) {
  const Stream stream;
  const DeviceMemory memory(1 << 16);
  CUlaunchAttributeValue value{};
  CUaccessPolicyWindow window{};
  window.base_ptr = reinterpret_cast<void*>(CUdeviceptr{memory});
  window.num_bytes = 1 << 15;
  window.hitRatio = 0.5F;
  window.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
  value.accessPolicyWindow = window;
  CU_OK(cu().cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
  value = {};
  CU_OK(cu().cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
  EXPECT_EQ(window.base_ptr, value.accessPolicyWindow.base_ptr);
  EXPECT_EQ(window.num_bytes, value.accessPolicyWindow.num_bytes);
  EXPECT_EQ(window.hitRatio, value.accessPolicyWindow.hitRatio);
  EXPECT_EQ(window.hitProp, value.accessPolicyWindow.hitProp);
  const Stream copy;
  CU_OK(cu().cuStreamCopyAttributes(copy, stream));
  value = {};
  CU_OK(cu().cuStreamGetAttribute(copy, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
  EXPECT_EQ(window.base_ptr, value.accessPolicyWindow.base_ptr);
  EXPECT_EQ(window.num_bytes, value.accessPolicyWindow.num_bytes);
}

TEST_F(StreamTest, AttributesCanBeReadSetAndCopied) {
  const Stream from;
  const Stream to;
  CUlaunchAttributeValue value{};
  value.syncPolicy = CU_SYNC_POLICY_SPIN;
  CU_OK(cu().cuStreamSetAttribute(from, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  CU_OK(cu().cuStreamCopyAttributes(to, from));
  value = {};
  CU_OK(cu().cuStreamGetAttribute(to, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT_EQ(CU_SYNC_POLICY_SPIN, value.syncPolicy);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuStreamGetAttribute(from, static_cast<CUlaunchAttributeID>(99), &value));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuStreamGetAttribute(from, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
}

}  // namespace
}  // namespace flyt::conformance
