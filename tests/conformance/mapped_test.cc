// Host memory that kernels reach: what one side wrote, the other sees at the points where it may.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

// through(p): *p is a structure {u64 in; u64 out}: *out = *in + 1. raise(p, n): byte i of n bytes
// becomes i where i is odd.
const char* const kPointersPtx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry through(.param .u64 structure)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [structure];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u64 %rd3, [%rd2];
  ld.global.u64 %rd4, [%rd2+8];
  cvta.to.global.u64 %rd5, %rd3;
  cvta.to.global.u64 %rd6, %rd4;
  ld.global.u32 %r1, [%rd5];
  add.u32 %r2, %r1, 1;
  st.global.u32 [%rd6], %r2;
  ret;
}
.visible .entry raise(.param .u64 data, .param .u32 count)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  and.b32 %r6, %r5, 1;
  setp.eq.u32 %p2, %r6, 0;
  @%p2 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  cvt.u64.u32 %rd3, %r5;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u8 [%rd4], %r5;
DONE:
  ret;
}
)";

class MappedTest : public ContextTest {
 protected:
  static CUdeviceptr address_of(const void* memory) {
    return reinterpret_cast<CUdeviceptr>(memory);
  }
};

TEST_F(MappedTest, KernelsSeeWhatTheHostWroteBeforeEachLaunch) {
  const PinnedMemory pinned(4096, CU_MEMHOSTALLOC_DEVICEMAP);
  const Module module(kBasicPtx);
  const CUfunction add_one = module.function("add_one");
  auto* words = pinned.as<volatile std::uint32_t>();
  const Stream stream;
  for (std::uint32_t i = 0; i < 64; ++i) {
    words[i] = 100 * i;
    CU_OK(launch(add_one, 1, 1, stream, address_of(pinned.data()) + 4 * i, 1u));
  }
  CU_OK(cu().cuStreamSynchronize(stream));
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(100 * i + 1, words[i]) << i;
}

TEST_F(MappedTest, EveryKindOfWaitShowsWhatAKernelWrote) {
  const PinnedMemory pinned(64);
  const DeviceMemory device_memory(4);
  const Module module(kBasicPtx);
  const CUfunction store = module.function("store_value");
  auto* word = pinned.as<volatile std::uint32_t>();
  const Stream stream;
  const Event event;
  std::uint32_t value = 0;
  const auto kernel = [&] {
    return launch(store, 1, 1, stream, address_of(pinned.data()), ++value);
  };
  CU_OK(kernel());
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(value, *word);
  CU_OK(kernel());
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(value, *word);
  CU_OK(kernel());
  CU_OK(cu().cuEventRecord(event, stream));
  CU_OK(cu().cuEventSynchronize(event));
  EXPECT_EQ(value, *word);
  CU_OK(kernel());
  CU_OK(cu().cuEventRecord(event, stream));
  EXPECT_TRUE(eventually([&] { return cu().cuEventQuery(event) == CUDA_SUCCESS; }));
  EXPECT_EQ(value, *word);
  CU_OK(kernel());
  EXPECT_TRUE(eventually([&] { return cu().cuStreamQuery(stream) == CUDA_SUCCESS; }));
  EXPECT_EQ(value, *word);
  CU_OK(launch(store, 1, 1, nullptr, address_of(pinned.data()), ++value));
  std::uint32_t out = 0;
  CU_OK(cu().cuMemcpyDtoH_v2(&out, device_memory, 4));
  EXPECT_EQ(value, *word);
}

TEST_F(MappedTest, BytesThatHostAndKernelWriteSideBySideAllSurvive) {
  constexpr unsigned kBytes = 8192;
  const PinnedMemory pinned(kBytes, CU_MEMHOSTALLOC_DEVICEMAP);
  const Module module(kPointersPtx);
  std::memset(pinned.data(), 0, kBytes);
  const Stream stream;
  Gate gate;
  gate.close(stream);
  CU_OK(launch(module.function("raise"), kBytes / 256, 256, stream, address_of(pinned.data()),
               kBytes));
  for (unsigned i = 0; i < kBytes; i += 2) pinned.bytes()[i] = static_cast<std::uint8_t>(i);
  gate.open();
  CU_OK(cu().cuStreamSynchronize(stream));
  for (unsigned i = 0; i < kBytes; ++i) {
    ASSERT_EQ(static_cast<std::uint8_t>(i), pinned.bytes()[i]) << i;
  }
}

TEST_F(MappedTest, RegisteredMemoryIsReachedByItsDevicePointerAndKeepsWhatKernelsWrote) {
  std::vector<std::uint8_t> storage(100'000);
  auto* begin = storage.data() + 4 - reinterpret_cast<std::uintptr_t>(storage.data()) % 4;
  constexpr unsigned kCount = 20'000;
  for (unsigned i = 0; i < kCount; ++i) std::memcpy(begin + 4 * i, &i, 4);
  CU_OK(cu().cuMemHostRegister_v2(begin, 4 * kCount, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemHostGetDevicePointer_v2(&address, begin, 0));
  const Module module(kBasicPtx);
  CU_OK(launch(module.function("add_one"), (kCount + 255) / 256, 256, nullptr, address, kCount));
  CU_OK(cu().cuCtxSynchronize());
  // The second time, by the pointer to its middle, and what it wrote is there after the end too.
  CU_OK(cu().cuMemHostGetDevicePointer_v2(&address, begin + 4 * 1000, 0));
  CU_OK(launch(module.function("add_one"), 1, 32, nullptr, address, 10u));
  CU_OK(cu().cuMemHostUnregister(begin));
  for (unsigned i = 0; i < kCount; ++i) {
    std::uint32_t value = 0;
    std::memcpy(&value, begin + 4 * i, 4);
    ASSERT_EQ(i + (i >= 1000 && i < 1010 ? 2 : 1), value) << i;
  }
}

TEST_F(MappedTest, SmallRangesAreRegisteredAndReachedEachOnItsOwn) {
  std::vector<std::uint32_t> storage(4096);
  const Module module(kBasicPtx);
  // Two pages apart, for drivers that register whole pages.
  std::uint32_t* const parts[] = {storage.data() + 1, storage.data() + 2049};
  for (std::uint32_t* part : parts) {
    *part = 5;
    CU_OK(cu().cuMemHostRegister_v2(part, 40, 0));
    CUdeviceptr address = 0;
    CU_OK(cu().cuMemHostGetDevicePointer_v2(&address, part, 0));
    CU_OK(launch(module.function("add_one"), 1, 1, nullptr, address, 1u));
  }
  CU_OK(cu().cuCtxSynchronize());
  for (std::uint32_t* part : parts) {
    EXPECT_EQ(6u, *part);
    CU_OK(cu().cuMemHostUnregister(part));
  }
}

TEST_F(MappedTest, RangesComeAndGoWhileAnotherThreadLaunches) {
  const Module module(kBasicPtx);
  const CUfunction add = module.function("add_one");
  std::atomic<bool> stop{false};
  std::thread launching([&] {
    const Unrecorded quiet;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    const DeviceMemory memory(4);
    const Stream stream;
    while (!stop) {
      ASSERT_EQ(CUDA_SUCCESS, launch(add, 1, 1, stream, static_cast<CUdeviceptr>(memory), 1u));
      ASSERT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
    }
  });
  const Stream stream;
  std::vector<std::uint32_t> storage(2048);
  bool right = true;
  for (std::uint32_t i = 1; i <= 300 && right; ++i) {
    const Unrecorded quiet;
    std::uint32_t* const words = storage.data() + 1;
    *words = i;
    CUdeviceptr address = 0;
    right = cu().cuMemHostRegister_v2(words, 40, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS &&
            cu().cuMemHostGetDevicePointer_v2(&address, words, 0) == CUDA_SUCCESS &&
            launch(add, 1, 1, stream, address, 1u) == CUDA_SUCCESS &&
            cu().cuStreamSynchronize(stream) == CUDA_SUCCESS && *words == i + 1;
    // Nobody's but the program's any more: what was not sent need not be.
    words[5] = i;
    right = cu().cuMemHostUnregister(words) == CUDA_SUCCESS && right && words[5] == i;
    EXPECT_TRUE(right) << "in round " << i;
  }
  stop = true;
  launching.join();
}

TEST_F(MappedTest, RangesGoWhileFunctionsOfTheProgramWriteToOthers) {
  std::vector<std::uint32_t> counted(1024);
  CU_OK(cu().cuMemHostRegister_v2(counted.data(), 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr word = 0;
  CU_OK(cu().cuMemHostGetDevicePointer_v2(&word, counted.data(), 0));
  constexpr std::uint32_t kRounds = 300;
  std::vector<std::thread> threads;
  std::atomic<std::uint32_t> gone{0};
  for (std::uint32_t thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      const Unrecorded quiet;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      const Stream stream;
      const auto count = [](void* at) { ++*static_cast<std::uint32_t*>(at); };
      for (std::uint32_t i = 0; i < kRounds; ++i) {
        ASSERT_EQ(CUDA_SUCCESS, cu().cuLaunchHostFunc(stream, count, counted.data() + 16 * thread));
      }
      EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
    });
    threads.emplace_back([&] {
      const Unrecorded quiet;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      std::vector<std::uint32_t> storage(2048);
      CUdeviceptr address = 0;
      for (std::uint32_t i = 0; i < kRounds / 10; ++i) {
        gone += cu().cuMemHostRegister_v2(storage.data(), 40, CU_MEMHOSTREGISTER_DEVICEMAP) ==
                    CUDA_SUCCESS &&
                cu().cuMemHostGetDevicePointer_v2(&address, storage.data(), 0) == CUDA_SUCCESS &&
                cu().cuMemHostUnregister(storage.data()) == CUDA_SUCCESS;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(2 * (kRounds / 10), gone);
  for (const std::uint32_t thread : {0, 1}) EXPECT_EQ(kRounds, counted[16 * thread]);
  CU_OK(cu().cuMemHostUnregister(counted.data()));
}

TEST_F(MappedTest, PointersInAStructureInDeviceMemoryAreFollowed) {
  const PinnedMemory in(16);
  const PinnedMemory out(16);
  const Module module(kPointersPtx);
  *in.as<std::uint32_t>() = 77;
  *out.as<std::uint32_t>() = 0;
  const DeviceMemory structure(16);
  structure.write(std::vector<std::uint64_t>{address_of(in.data()), address_of(out.data())});
  CU_OK(launch(module.function("through"), 1, 1, nullptr, static_cast<CUdeviceptr>(structure)));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(78u, *out.as<std::uint32_t>());
}

TEST_F(MappedTest, AStructureInMappedMemoryMayPointToOtherMappedMemory) {
  const PinnedMemory structure(16, CU_MEMHOSTALLOC_DEVICEMAP);
  const PinnedMemory words(16, CU_MEMHOSTALLOC_DEVICEMAP);
  const Module module(kPointersPtx);
  words.as<std::uint32_t>()[0] = 41;
  structure.as<std::uint64_t>()[0] = address_of(words.data());
  structure.as<std::uint64_t>()[1] = address_of(words.data()) + 4;
  CU_OK(launch(module.function("through"), 1, 1, nullptr, address_of(structure.data())));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(42u, words.as<std::uint32_t>()[1]);
}

TEST_F(MappedTest, CopiesAndKernelsInAStreamSeeEachOther) {
  constexpr std::size_t kBytes = 40'000;
  const PinnedMemory pinned(kBytes, CU_MEMHOSTALLOC_DEVICEMAP);
  const DeviceMemory memory(kBytes);
  const Module module(kBasicPtx);
  const CUfunction add_one = module.function("add_one");
  const unsigned count = kBytes / 4;
  const unsigned blocks = (count + 255) / 256;
  auto* words = pinned.as<std::uint32_t>();
  for (unsigned i = 0; i < count; ++i) words[i] = i;
  const Stream stream;
  // Up by a kernel here, over there, up by one there, back, up by one here.
  CU_OK(launch(add_one, blocks, 256, stream, address_of(words), count));
  CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, words, kBytes, stream));
  CU_OK(launch(add_one, blocks, 256, stream, static_cast<CUdeviceptr>(memory), count));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(words, memory, kBytes, stream));
  CU_OK(launch(add_one, blocks, 256, stream, address_of(words), count));
  CU_OK(cu().cuStreamSynchronize(stream));
  for (unsigned i = 0; i < count; ++i) ASSERT_EQ(i + 3, words[i]) << i;
}

TEST_F(MappedTest, BlockingCopiesFromAndToMappedMemoryAreDoneWhenTheyReturn) {
  constexpr std::size_t kBytes = 300'000;
  const PinnedMemory pinned(kBytes, CU_MEMHOSTALLOC_DEVICEMAP);
  const DeviceMemory memory(kBytes);
  std::memset(pinned.data(), 1, kBytes);
  CU_OK(cu().cuMemcpyHtoD_v2(memory, pinned.data(), kBytes));
  std::memset(pinned.data(), 2, kBytes);
  EXPECT_EQ(std::vector<std::uint8_t>(kBytes, 1), memory.read<std::uint8_t>());
  CU_OK(cu().cuMemcpyDtoH_v2(pinned.data(), memory, kBytes));
  EXPECT_EQ(1, pinned.bytes()[0]);
  EXPECT_EQ(1, pinned.bytes()[kBytes - 1]);
  std::vector<std::uint8_t> ordinary(kBytes, 9);
  CU_OK(cu().cuMemcpy(address_of(pinned.data()), address_of(ordinary.data()), kBytes));
  EXPECT_EQ(9, pinned.bytes()[kBytes / 2]);
}

TEST_F(MappedTest, MappedMemoryIsFilled) {
  const PinnedMemory pinned(1000, CU_MEMHOSTALLOC_DEVICEMAP);
  std::memset(pinned.data(), 1, 1000);
  CU_OK(cu().cuMemsetD8_v2(address_of(pinned.data()), 0, 500));
  EXPECT_EQ(0, pinned.bytes()[0]);
  EXPECT_EQ(0, pinned.bytes()[499]);
  EXPECT_EQ(1, pinned.bytes()[500]);
  const Stream stream;
  CU_OK(cu().cuMemsetD32Async(address_of(pinned.data()) + 500, 0x01020304, 5, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(4, pinned.bytes()[500]);
  EXPECT_EQ(1, pinned.bytes()[519]);
}

TEST_F(MappedTest, StreamsWriteAndAwaitWordsInHostMemory) {
  const PinnedMemory pinned(16);
  auto* words = pinned.as<volatile std::uint32_t>();
  words[0] = 0;
  words[1] = 0;
  const Stream stream;
  CU_OK(cu().cuStreamWaitValue32_v2(stream, address_of(pinned.data()), 5, CU_STREAM_WAIT_VALUE_EQ));
  CU_OK(cu().cuStreamWriteValue32_v2(stream, address_of(pinned.data()) + 4, 6, 0));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
  std::atomic_ref(*pinned.as<std::uint32_t>()).store(5);
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(6u, words[1]);
}

struct Passed {
  volatile std::uint32_t* word = nullptr;
  std::uint32_t seen = 0;
};

void pass_on(void* user) {
  auto* passed = static_cast<Passed*>(user);
  passed->seen = *passed->word;
  *passed->word = 1000;
}

TEST_F(MappedTest, AHostFunctionStandsBetweenTheKernelsBeforeAndBehindIt) {
  const PinnedMemory pinned(16, CU_MEMHOSTALLOC_DEVICEMAP);
  const Module module(kBasicPtx);
  Passed passed{pinned.as<volatile std::uint32_t>(), 0};
  *passed.word = 7;
  const Stream stream;
  CU_OK(launch(module.function("add_one"), 1, 1, stream, address_of(pinned.data()), 1u));
  CU_OK(cu().cuLaunchHostFunc(stream, pass_on, &passed));
  CU_OK(launch(module.function("add_one"), 1, 1, stream, address_of(pinned.data()), 1u));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(8u, passed.seen);
  EXPECT_EQ(1001u, *passed.word);
}

TEST_F(MappedTest, SystemCallsReadAndWriteMappedMemory) {
  const PinnedMemory pinned(65'536, CU_MEMHOSTALLOC_DEVICEMAP);
  const Module module(kBasicPtx);
  int ends[2];
  ASSERT_EQ(0, ::pipe(ends));
  const std::uint32_t sent[] = {10, 20, 30, 40};
  ASSERT_EQ(16, ::write(ends[1], sent, sizeof sent));
  ASSERT_EQ(16, ::read(ends[0], pinned.bytes() + 32'768, 16));
  CU_OK(launch(module.function("add_one"), 1, 4, nullptr, address_of(pinned.data()) + 32'768, 4u));
  CU_OK(cu().cuCtxSynchronize());
  ASSERT_EQ(16, ::write(ends[1], pinned.bytes() + 32'768, 16));
  std::uint32_t received[4] = {};
  ASSERT_EQ(16, ::read(ends[0], received, 16));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sent[i] + 1, received[i]);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(MappedTest, MemoryThatTakesThePlaceOfFreedMemoryIsSeenAsItIs) {
  const Module module(kBasicPtx);
  for (std::uint32_t round = 1; round < 20; ++round) {
    const PinnedMemory pinned(1 << 20, round % 2 == 0 ? CU_MEMHOSTALLOC_DEVICEMAP : 0);
    auto* words = pinned.as<volatile std::uint32_t>();
    words[0] = round;
    words[200'000] = round;
    CU_OK(launch(module.function("add_one"), 1, 1, nullptr, address_of(pinned.data()), 1u));
    CU_OK(
        launch(module.function("add_one"), 1, 1, nullptr, address_of(pinned.data()) + 800'000, 1u));
    CU_OK(cu().cuCtxSynchronize());
    EXPECT_EQ(round + 1, words[0]);
    EXPECT_EQ(round + 1, words[200'000]);
  }
}

TEST_F(MappedTest, ALargeBufferArrivesWholeBothWays) {
  constexpr unsigned kCount = 3'000'000;
  const PinnedMemory pinned(4 * kCount, CU_MEMHOSTALLOC_DEVICEMAP);
  auto* words = pinned.as<std::uint32_t>();
  for (unsigned i = 0; i < kCount; ++i) words[i] = i * 2654435761u;
  const Module module(kBasicPtx);
  CU_OK(launch(module.function("add_one"), (kCount + 255) / 256, 256, nullptr, address_of(words),
               kCount));
  CU_OK(cu().cuCtxSynchronize());
  unsigned wrong = 0;
  for (unsigned i = 0; i < kCount; ++i) wrong += words[i] != i * 2654435761u + 1 ? 1 : 0;
  EXPECT_EQ(0u, wrong);
}

using MappedAlone = DriverTest;

TEST_F(MappedAlone, MappedMemoryEndsWithItsContext) {
  const auto make = [&](CUcontext* context) { return cu().cuCtxCreate_v2(context, 0, device); };
  CUcontext context = nullptr;
  CU_OK(make(&context));
  void* memory = nullptr;
  CU_OK(cu().cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  std::vector<std::uint32_t> storage(4096);
  CU_OK(cu().cuMemHostRegister_v2(storage.data(), 4 * storage.size(), 0));
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemHostGetDevicePointer_v2(&address, storage.data(), 0));
  {
    const Module module(kBasicPtx);
    CU_OK(launch(module.function("store_value"), 1, 1, nullptr, address, 12u));
  }
  CU_OK(cu().cuCtxDestroy_v2(context));
  EXPECT_EQ(12u, storage[0]);
  CU_OK(make(&context));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeHost(memory));
  CU_OK(cu().cuMemHostRegister_v2(storage.data(), 4 * storage.size(), 0));
  CU_OK(cu().cuMemHostGetDevicePointer_v2(&address, storage.data(), 0));
  {
    const Module module(kBasicPtx);
    CU_OK(launch(module.function("add_one"), 1, 1, nullptr, address, 1u));
    CU_OK(cu().cuCtxSynchronize());
  }
  EXPECT_EQ(13u, storage[0]);
  CU_OK(cu().cuMemHostUnregister(storage.data()));
  CU_OK(cu().cuCtxDestroy_v2(context));
}

}  // namespace
}  // namespace flyt::conformance
