// One-dimensional copies: contents, bounds, and order.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

using CopyTest = ContextTest;

std::vector<std::uint8_t> pattern(std::size_t size, std::uint8_t seed) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 31 + seed);
  return bytes;
}

TEST_F(CopyTest, EverySizeSurvivesThereAndBack) {
  for (const std::size_t size : {1, 3, 4, 255, 4096, 65535, 65536, 262144, 262145, 5000001}) {
    const DeviceMemory memory(size);
    const auto sent = pattern(size, 7);
    std::vector<std::uint8_t> received(size);
    CU_OK(cu().cuMemcpyHtoD_v2(memory, sent.data(), size));
    CU_OK(cu().cuMemcpyDtoH_v2(received.data(), memory, size));
    ASSERT_EQ(sent, received) << size;
  }
}

TEST_F(CopyTest, OffsetsAreRespected) {
  const DeviceMemory memory(100);
  memory.fill(0xee);
  const auto sent = pattern(10, 1);
  CU_OK(cu().cuMemcpyHtoD_v2(memory + 33, sent.data(), 10));
  const auto all = memory.read<std::uint8_t>();
  EXPECT_EQ(0xee, all[32]);
  EXPECT_EQ(0, std::memcmp(&all[33], sent.data(), 10));
  EXPECT_EQ(0xee, all[43]);
}

TEST_F(CopyTest, NothingToCopyIsFine) {
  const DeviceMemory memory(16);
  std::uint8_t host[16] = {};
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyHtoD_v2(memory, host, 0));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyHtoD_v2(0, host, 0));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyHtoD_v2(memory, nullptr, 0));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyDtoH_v2(host, memory, 0));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyDtoD_v2(memory, memory, 0));
}

TEST_F(CopyTest, AddressesOutsideTheAllocationAreInvalid) {
  const DeviceMemory memory(1000);
  std::vector<std::uint8_t> host(5000);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(memory, host.data(), 1001));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(memory + 990, host.data(), 20));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(0x1234, host.data(), 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoH_v2(host.data(), memory, 1001));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoH_v2(host.data(), 0, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoD_v2(memory, memory + 500, 1001));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoD_v2(memory, 0x1234, 4));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyHtoD_v2(memory, host.data(), 1000));
}

TEST_F(CopyTest, NullAddressesAreInvalid) {
  const DeviceMemory memory(16);
  std::uint8_t host[16] = {};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(0, host, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(memory, nullptr, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoH_v2(nullptr, memory, 4));
}

TEST_F(CopyTest, HostMemoryIsNoDeviceMemory) {
  const DeviceMemory memory(16);
  std::uint8_t host[256] = {};
  const auto as_device = reinterpret_cast<CUdeviceptr>(host);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(as_device, host + 100, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoH_v2(host, as_device + 64, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoD_v2(memory, as_device, 4));
}

TEST_F(CopyTest, AfterTheFreeTheAddressIsInvalid) {
  CUdeviceptr address = 0;
  std::uint32_t value = 0;
  CU_OK(cu().cuMemAlloc_v2(&address, 3u << 20));
  CU_OK(cu().cuMemFree_v2(address));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(address, &value, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoH_v2(&value, address, 4));
}

TEST_F(CopyTest, DeviceToDeviceCopiesAreExact) {
  const DeviceMemory from(1000);
  const DeviceMemory to(1000);
  const auto sent = pattern(1000, 3);
  from.write(sent);
  CU_OK(cu().cuMemcpyDtoD_v2(to, from, 1000));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(sent, to.read<std::uint8_t>());
}

TEST_F(CopyTest, TheUnifiedFormInfersTheDirection) {
  const DeviceMemory memory(64);
  auto sent = pattern(64, 9);
  std::vector<std::uint8_t> received(64);
  const auto from = reinterpret_cast<CUdeviceptr>(sent.data());
  const auto to = reinterpret_cast<CUdeviceptr>(received.data());
  CU_OK(cu().cuMemcpy(memory, from, 64));
  CU_OK(cu().cuMemcpy(to, memory, 64));
  EXPECT_EQ(sent, received);
  received.assign(64, 0);
  CU_OK(cu().cuMemcpy(to, from, 64));
  EXPECT_EQ(sent, received);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy(to, memory, 65));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy(memory, 0, 16));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpy(memory, from, 0));
}

TEST_F(CopyTest, AsynchronousCopiesRunInStreamOrder) {
  const Stream stream;
  const DeviceMemory memory(1 << 20);
  const PinnedMemory in(1 << 20);
  const PinnedMemory out(1 << 20);
  const auto sent = pattern(1 << 20, 5);
  std::memcpy(in.data(), sent.data(), sent.size());
  std::memset(out.data(), 0, 1 << 20);
  CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, in.data(), 1 << 20, stream));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory, 1 << 20, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(0, std::memcmp(sent.data(), out.data(), sent.size()));
}

TEST_F(CopyTest, PageableMemoryMayBeReusedAsSoonAsAnAsyncCopyReturns) {
  const Stream stream;
  const DeviceMemory memory(1000);
  Gate gate;
  gate.close(stream);
  {
    auto sent = pattern(1000, 11);
    gate.open();
    CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, sent.data(), 1000, stream));
    std::memset(sent.data(), 0, 1000);
  }
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(pattern(1000, 11), memory.read<std::uint8_t>());
}

TEST_F(CopyTest, BytesAreThereWhenAQuerySaysSo) {
  const Stream stream;
  const Event event;
  const Module module(kBasicPtx);
  const DeviceMemory memory(4);
  const PinnedMemory out(4);
  for (std::uint32_t i = 1; i <= 50; ++i) {
    CU_OK(
        launch(module.function("store_value"), 1, 1, stream, static_cast<CUdeviceptr>(memory), i));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory, 4, stream));
    CU_OK(cu().cuEventRecord(event, stream));
    ASSERT_TRUE(eventually([&] { return cu().cuEventQuery(event) == CUDA_SUCCESS; }));
    ASSERT_EQ(i, *out.as<volatile std::uint32_t>());
  }
}

TEST_F(CopyTest, BytesAreThereWhenAStreamQuerySaysSo) {
  const Stream stream;
  const DeviceMemory memory(300000);
  const PinnedMemory out(300000);
  for (std::uint8_t i = 1; i <= 10; ++i) {
    CU_OK(cu().cuMemsetD8Async(memory, i, 300000, stream));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory, 300000, stream));
    ASSERT_TRUE(eventually([&] { return cu().cuStreamQuery(stream) == CUDA_SUCCESS; }));
    ASSERT_EQ(i, out.bytes()[0]);
    ASSERT_EQ(i, out.bytes()[299999]);
  }
}

TEST_F(CopyTest, AnAsyncCopyToTheHostWaitsForWorkBeforeIt) {
  const Stream stream;
  const DeviceMemory memory(4);
  const PinnedMemory out(4);
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  memory.fill(0);
  *out.as<std::uint32_t>() = 77;
  Gate gate;
  gate.close(stream);
  CU_OK(launch(store, 1, 1, stream, static_cast<CUdeviceptr>(memory), 5u));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory, 4, stream));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
  EXPECT_EQ(77u, *out.as<volatile std::uint32_t>());
  gate.open();
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(5u, *out.as<volatile std::uint32_t>());
}

TEST_F(CopyTest, AnAsyncCopyArrivesWithoutBeingAskedFor) {
  const Stream stream;
  const DeviceMemory memory(4);
  const PinnedMemory out(4);
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  for (std::uint32_t i = 1; i <= 20; ++i) {
    SCOPED_TRACE(i);
    Gate gate;
    if (i % 4 == 0) gate.close(stream);
    CU_OK(launch(store, 1, 1, stream, static_cast<CUdeviceptr>(memory), i));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory, 4, stream));
    if (i % 4 == 0) gate.open();
    ASSERT_TRUE(eventually([&] { return *out.as<volatile std::uint32_t>() == i; }));
  }
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(CopyTest, AsynchronousBoundsAreCheckedAtTheCall) {
  const DeviceMemory memory(1000);
  std::vector<std::uint8_t> host(5000);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoDAsync_v2(memory, host.data(), 1001, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoHAsync_v2(host.data(), memory, 1001, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemcpyDtoDAsync_v2(memory, memory + 16, std::size_t{1} << 40, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(CopyTest, PeerCopiesWithinOneContext) {
  const DeviceMemory from(100);
  const DeviceMemory to(100);
  from.write(pattern(100, 21));
  CU_OK(cu().cuMemcpyPeer(to, context, from, context, 100));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(pattern(100, 21), to.read<std::uint8_t>());
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyPeer(to, context, from, context, 5000));
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyPeerAsync(to, context, from, context, 50, nullptr));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

TEST_F(CopyTest, APageableCopyToTheHostIsDoneWhenItReturns) {
  const Stream stream;
  const DeviceMemory memory(4096);
  std::vector<std::uint8_t> host(4096, 1);
  CU_OK(cu().cuMemsetD8Async(memory, 0x5a, 4096, stream));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(host.data(), memory, 4096, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint8_t>(4096, 0x5a), host);
}

TEST_F(CopyTest, ABatchOfCopiesTakesAnyStreamButTheLegacyOne) {
  if (!cu().cuMemcpyBatchAsync_v2.present()) GTEST_SKIP() << "an older driver";
  const Stream stream;
  const DeviceMemory memory(64);
  std::vector<std::uint8_t> sent = pattern(64, 5);
  CUdeviceptr to[] = {memory, memory + 32};
  const auto source = reinterpret_cast<CUdeviceptr>(sent.data());
  CUdeviceptr from[] = {source + 32, source};
  std::size_t sizes[] = {32, 32};
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t first = 0;
  const auto batch = [&](CUstream on) {
    return cu().cuMemcpyBatchAsync_v2(to, from, sizes, 2, &attributes, &first, 1, on);
  };
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch(CU_STREAM_LEGACY));
  CU_OK(batch(stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  std::rotate(sent.begin(), sent.begin() + 32, sent.end());
  EXPECT_EQ(sent, memory.read<std::uint8_t>());
}

TEST_F(CopyTest, ABatchLooksAtItsAttributesAndWantsAContext) {
  if (!cu().cuMemcpyBatchAsync_v2.present()) GTEST_SKIP() << "an older driver";
  const Stream stream;
  const DeviceMemory memory(64);
  const auto batch = [&](auto change) {
    CUdeviceptr to = memory;
    CUdeviceptr from = memory + 32;
    std::size_t size = 32;
    std::size_t first = 0;
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    change(attributes);
    return cu().cuMemcpyBatchAsync_v2(&to, &from, &size, 1, &attributes, &first, 1, stream);
  };
  const auto nothing = [](auto&) {};
  CU_OK(batch(nothing));
  CU_OK(batch([](auto& a) { a.srcLocHint = {CU_MEM_LOCATION_TYPE_DEVICE, 0}; }));
  CU_OK(batch([](auto& a) { a.dstLocHint = {CU_MEM_LOCATION_TYPE_HOST, 99}; }));
  CU_OK(batch([](auto& a) { a.flags = 1; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        batch([](auto& a) { a.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch([](auto& a) {
          a.srcLocHint = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
        }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch([](auto& a) {
          a.dstLocHint = {CU_MEM_LOCATION_TYPE_DEVICE, -1};
        }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch([](auto& a) { a.flags = 2; }));
  CUcontext popped = nullptr;
  CU_OK(cu().cuCtxPopCurrent_v2(&popped));
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch(nothing));
  CU_OK(cu().cuCtxPushCurrent_v2(popped));
}

TEST_F(CopyTest, ABatchHasNoCopyOfNothing) {
  if (!cu().cuMemcpyBatchAsync_v2.present()) GTEST_SKIP() << "an older driver";
  const Stream stream;
  const DeviceMemory memory(64);
  CUdeviceptr to = memory;
  CUdeviceptr from = memory + 32;
  std::size_t size = 0;
  std::size_t first = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemcpyBatchAsync_v2(&to, &from, &size, 1, &attributes, &first, 1, stream));
}

// What the attributes say of a source holds from the copy on that their index tells.
TEST_F(CopyTest, ABatchMayReadItsSourcesDuringTheCall) {
  if (!cu().cuMemcpyBatchAsync_v2.present()) GTEST_SKIP() << "an older driver";
  const Stream stream;
  const DeviceMemory memory(1000);
  const DeviceMemory between(8);
  const auto sent = pattern(1000, 17);
  for (const unsigned int flags : {CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP}) {
    const PinnedMemory source(1000, flags);
    std::memcpy(source.bytes(), sent.data(), sent.size());
    CU_OK(cu().cuMemsetD8_v2(memory, 0, 1000));
    std::promise<void> opened;
    std::future<void> closed = opened.get_future();
    const auto wait = [](void* future) { static_cast<std::future<void>*>(future)->wait(); };
    CU_OK(cu().cuLaunchHostFunc(stream, wait, &closed));
    CUdeviceptr to[] = {between, memory};
    CUdeviceptr from[] = {reinterpret_cast<CUdeviceptr>(source.bytes()),
                          reinterpret_cast<CUdeviceptr>(source.bytes())};
    std::size_t sizes[] = {8, 1000};
    CUmemcpyAttributes attributes[2]{};
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    std::size_t firsts[] = {0, 1};
    // A driver may wait for what stands before the copies, to read the source in the call.
    std::thread opener([&opened] {
      // lint: allow(sleep): a source that is read after the call holds zeros by then.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      opened.set_value();
    });
    CU_OK(cu().cuMemcpyBatchAsync_v2(to, from, sizes, 2, attributes, firsts, 2, stream));
    std::memset(source.bytes(), 0, 1000);
    opener.join();
    CU_OK(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(sent, memory.read<std::uint8_t>()) << flags;
  }
}

// Large enough that a driver takes them in pieces, and several at a time.
TEST_F(CopyTest, LargePageableCopiesOfSeveralThreadsDoNotMix) {
  std::vector<std::thread> threads;
  for (std::uint8_t number = 1; number <= 3; ++number) {
    threads.emplace_back([number, this] {
      const Unrecorded quiet;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      const Stream stream;
      const std::size_t bytes = (std::size_t{5} << 20) * number + number;
      const DeviceMemory memory(bytes);
      for (std::uint8_t round = 0; round < 3; ++round) {
        auto sent = pattern(bytes, static_cast<std::uint8_t>(16 * round + number));
        const auto kept = sent;
        EXPECT_EQ(CUDA_SUCCESS, cu().cuMemcpyHtoDAsync_v2(memory, sent.data(), bytes, stream));
        std::memset(sent.data(), 0, bytes);
        EXPECT_EQ(CUDA_SUCCESS, cu().cuMemcpyDtoHAsync_v2(sent.data(), memory, bytes, stream));
        EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
        EXPECT_TRUE(kept == sent) << "thread " << int{number} << ", round " << int{round};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace flyt::conformance
