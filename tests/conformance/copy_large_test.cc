// Copies so large that a driver takes them in pieces, by whatever ways it has.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using CopyLargeTest = ContextTest;

constexpr std::size_t kSizes[] = {1u << 20, (1u << 20) + 1, 3'456'789, 20u << 20};

std::vector<std::uint8_t> pattern(std::size_t size, std::uint8_t seed) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::uint8_t>((i * 2654435761U >> 13) + seed);
  }
  return bytes;
}

TEST_F(CopyLargeTest, PageableMemorySurvivesThereAndBack) {
  for (const std::size_t size : kSizes) {
    const DeviceMemory memory(size);
    const auto sent = pattern(size, 1);
    std::vector<std::uint8_t> received(size);
    CU_OK(cu().cuMemcpyHtoD_v2(memory, sent.data(), size));
    CU_OK(cu().cuMemcpyDtoH_v2(received.data(), memory, size));
    ASSERT_TRUE(sent == received) << size;
  }
}

TEST_F(CopyLargeTest, PinnedMemorySurvivesThereAndBack) {
  for (const std::size_t size : kSizes) {
    const DeviceMemory memory(size);
    const auto sent = pattern(size, 2);
    const PinnedMemory in(size);
    const PinnedMemory out(size);
    std::memcpy(in.data(), sent.data(), size);
    CU_OK(cu().cuMemcpyHtoD_v2(memory, in.data(), size));
    CU_OK(cu().cuMemcpyDtoH_v2(out.data(), memory, size));
    ASSERT_EQ(0, std::memcmp(sent.data(), out.data(), size)) << size;
  }
}

TEST_F(CopyLargeTest, ComesInTheOrderOfItsStream) {
  constexpr std::size_t kSize = 6'000'001;
  const Stream stream;
  const DeviceMemory memory(kSize);
  const PinnedMemory in(kSize);
  const PinnedMemory first(kSize);
  const PinnedMemory second(kSize);
  const auto sent = pattern(kSize, 3);
  std::memcpy(in.data(), sent.data(), kSize);
  CU_OK(cu().cuMemsetD8Async(memory, 1, kSize, stream));
  CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, in.data(), kSize, stream));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(first.data(), memory, kSize, stream));
  CU_OK(cu().cuMemsetD8Async(memory, 9, kSize, stream));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(second.data(), memory, kSize, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(0, std::memcmp(sent.data(), first.data(), kSize));
  EXPECT_TRUE(std::vector<std::uint8_t>(kSize, 9) ==
              std::vector<std::uint8_t>(second.bytes(), second.bytes() + kSize));
}

TEST_F(CopyLargeTest, IsThereWhenAnEventSaysSo) {
  constexpr std::size_t kSize = 5u << 20;
  const Stream stream;
  const Event event;
  const DeviceMemory memory(kSize);
  const PinnedMemory out(kSize);
  for (std::uint8_t i = 1; i <= 8; ++i) {
    CU_OK(cu().cuMemsetD8Async(memory, i, kSize, stream));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory, kSize, stream));
    CU_OK(cu().cuEventRecord(event, stream));
    ASSERT_TRUE(eventually([&] { return cu().cuEventQuery(event) == CUDA_SUCCESS; }));
    for (std::size_t at = 0; at < kSize; at += 4093) ASSERT_EQ(i, out.bytes()[at]) << at;
    ASSERT_EQ(i, out.bytes()[kSize - 1]);
  }
}

TEST_F(CopyLargeTest, KeepsThePitchOfItsRows) {
  constexpr std::size_t kWidth = 1000;
  constexpr std::size_t kPitch = 1024;
  constexpr std::size_t kRows = 4000;
  const Stream stream;
  const DeviceMemory memory(kPitch * kRows);
  const PinnedMemory pinned(kPitch * kRows);
  std::vector<std::uint8_t> pageable(kPitch * kRows, 0xcc);
  std::memset(pinned.data(), 0xcc, kPitch * kRows);
  const auto sent = pattern(kPitch * kRows, 4);
  memory.write(sent);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.srcPitch = kPitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstPitch = kPitch;
  copy.WidthInBytes = kWidth;
  copy.Height = kRows;
  copy.dstHost = pageable.data();
  CU_OK(cu().cuMemcpy2D_v2(&copy));
  copy.dstHost = pinned.data();
  CU_OK(cu().cuMemcpy2DAsync_v2(&copy, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  for (std::size_t i = 0; i < kPitch * kRows; ++i) {
    const std::uint8_t wanted = i % kPitch < kWidth ? sent[i] : 0xcc;
    ASSERT_EQ(wanted, pageable[i]) << i;
    ASSERT_EQ(wanted, pinned.bytes()[i]) << i;
  }
}

// More than what a remote server takes in before the stream goes on.
TEST_F(CopyLargeTest, DoesNotKeepAHostFunctionBeforeItFromRunning) {
  constexpr std::size_t kSize = 160u << 20;
  const Stream stream;
  const DeviceMemory memory(kSize);
  auto sent = pattern(kSize, 5);
  const auto wait_a_little = [](void*) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  };
  CU_OK(cu().cuLaunchHostFunc(stream, wait_a_little, nullptr));
  CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, sent.data(), kSize, stream));
  const std::uint8_t last = sent.back();
  std::memset(sent.data(), 0, kSize);
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_OK(cu().cuMemcpyDtoH_v2(sent.data(), memory, kSize));
  EXPECT_EQ(last, sent.back());
  EXPECT_TRUE(sent == pattern(kSize, 5));
}

TEST_F(CopyLargeTest, BehindAStandingStreamDoesNotHoldOthersUp) {
  constexpr std::size_t kSize = 40u << 20;
  const Stream standing;
  const Stream other(CU_STREAM_NON_BLOCKING, -1);  // Sure to have a queue of its own.
  const DeviceMemory memory(kSize);
  const DeviceMemory word(4);
  const PinnedMemory in(kSize);
  const auto sent = pattern(kSize, 6);
  std::memcpy(in.data(), sent.data(), kSize);
  Gate gate;
  gate.close(standing);
  CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, in.data(), kSize, standing));
  CU_OK(cu().cuMemsetD8Async(word, 3, 4, other));
  CU_OK(cu().cuStreamSynchronize(other));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(standing));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(standing));
  EXPECT_TRUE(sent == memory.read<std::uint8_t>());
}

// Copies of more than a server takes in, or has memory ready for. The thread that copies may wait;
// nobody else does.
class CopyBesideTest : public ContextTest {
 protected:
  static constexpr std::size_t kSize = 160u << 20;

  using InStream = std::function<CUresult(CUstream)>;

  // Has a thread of its own copy in a stream that stands, until another has had many turns.
  void copy_while_others_go_on(const InStream& copy) {
    const DeviceMemory word(4);
    copy_beside(copy, [&](CUstream other) { return cu().cuMemsetD8Async(word, 1, 4, other); });
  }
  void copy_beside(const InStream& copy, const InStream& turn) {
    const Stream standing;
    const Stream other(CU_STREAM_NON_BLOCKING, -1);
    Gate gate;
    gate.close(standing);
    std::atomic<bool> begun{false};
    std::thread copying([&] {
      const Unrecorded quiet;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      begun = true;
      EXPECT_EQ(CUDA_SUCCESS, copy(standing));
    });
    {
      const Unrecorded quiet;
      EXPECT_TRUE(eventually([&] { return begun.load(); }));
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(CUDA_SUCCESS, turn(other));
        EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(other));
      }
    }
    CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(standing));
    gate.open();
    copying.join();
    CU_OK(cu().cuStreamSynchronize(standing));
  }
};

TEST_F(CopyBesideTest, OfPageableMemoryHoldsUpNoOtherThread) {
  const DeviceMemory memory(kSize);
  const auto sent = pattern(kSize, 7);
  copy_while_others_go_on([&](CUstream stream) {
    return cu().cuMemcpyHtoDAsync_v2(memory, sent.data(), kSize, stream);
  });
  EXPECT_TRUE(sent == memory.read<std::uint8_t>());
}

TEST_F(CopyBesideTest, OfPageLockedMemoryHoldsUpNoOtherThread) {
  const DeviceMemory memory(kSize);
  const PinnedMemory in(kSize);
  const auto sent = pattern(kSize, 8);
  std::memcpy(in.data(), sent.data(), kSize);
  copy_while_others_go_on(
      [&](CUstream stream) { return cu().cuMemcpyHtoDAsync_v2(memory, in.data(), kSize, stream); });
  EXPECT_TRUE(sent == memory.read<std::uint8_t>());
}

TEST_F(CopyBesideTest, ToPageLockedMemoryHoldsUpNoOtherThread) {
  const DeviceMemory memory(kSize);
  const PinnedMemory out(kSize);
  memory.fill(0x5a);
  std::memset(out.data(), 0, kSize);
  copy_while_others_go_on([&](CUstream stream) {
    return cu().cuMemcpyDtoHAsync_v2(out.data(), memory, kSize, stream);
  });
  const std::vector<std::uint8_t> wanted(kSize, 0x5a);
  EXPECT_EQ(0, std::memcmp(wanted.data(), out.data(), kSize));
}

// A small result beside them finds no memory ready either.
TEST_F(CopyBesideTest, SmallResultsAreReadMeanwhile) {
  const DeviceMemory memory(kSize);
  const DeviceMemory word(4);
  const PinnedMemory out(kSize);
  word.fill(3);
  copy_beside(
      [&](CUstream stream) { return cu().cuMemcpyDtoHAsync_v2(out.data(), memory, kSize, stream); },
      [&](CUstream other) {
        std::uint32_t result = 0;
        const CUresult read = cu().cuMemcpyDtoHAsync_v2(&result, word, 4, other);
        // From the GPU to pageable memory a copy ends when it is done.
        EXPECT_EQ(0x03030303u, result);
        return read;
      });
}

}  // namespace
}  // namespace flyt::conformance
