// Watches that a client asks for in every wrong way.
#include <map>

#include "server/workers.h"
#include "tests/hostile/hostile_session.h"
#include "wire/limits.h"

namespace flyt::sim {
namespace {

using wire::HandleKind;

class HostileWatches : public HostileSession {
 protected:
  // A stream that stands until release().
  void SetUp() override {
    HostileSession::SetUp();
    current_ = kPrimary;
    const CUresult got = ask(commands::MemAlloc{.bytes = 4096});
    ASSERT_EQ(got, CUDA_SUCCESS);
    commands::MemAlloc::Reply reply;
    ASSERT_TRUE(wire::decode(fields(), reply));
    word_ = reply.address;
    send(commands::StreamCreate{.stream = busy_, .flags = CU_STREAM_NON_BLOCKING});
    send(commands::StreamCreate{.stream = other_, .flags = CU_STREAM_NON_BLOCKING});
    write(other_, 0);
    ASSERT_EQ(ask(commands::StreamSynchronize{.stream = other_}), CUDA_SUCCESS);
    send(commands::StreamMemOp{.stream = busy_,
                               .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                               .address = word_,
                               .value = 1,
                               .flags = CU_STREAM_WAIT_VALUE_EQ});
    send(commands::EventCreate{.event = event_});
    send(commands::EventRecord{.event = event_, .stream = busy_});
  }
  void write(CUstream stream, std::uint64_t value) {
    send(commands::StreamMemOp{.stream = stream,
                               .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                               .address = word_,
                               .value = value});
  }
  void release() { write(other_, 1); }

  CUresult watch(std::uint64_t token, bool& watched) {
    const CUresult result = ask(commands::WatchEvent{.event = event_, .token = token});
    commands::WatchEvent::Reply reply;
    EXPECT_TRUE(wire::decode(fields(), reply));
    watched = reply.watched;
    return result;
  }
  // The next completed frames, by token: how many, and the last result.
  std::map<std::uint64_t, int> completions(std::size_t count, std::uint64_t& result) {
    std::map<std::uint64_t, int> all;
    for (std::size_t i = 0; i < count; ++i) {
      const Heard heard = peer_->read_until(wire::FrameKind::kCompleted);
      EXPECT_TRUE(heard.is(wire::FrameKind::kCompleted)) << i;
      ++all[heard.header.sequence];
      result = heard.header.argument;
    }
    return all;
  }

  CUdeviceptr word_ = 0;
  const CUstream busy_ = handle_as<CUstream>(HandleKind::kStream, 1);
  const CUstream other_ = handle_as<CUstream>(HandleKind::kStream, 2);
  const CUevent event_ = handle_as<CUevent>(HandleKind::kEvent, 1);
};

TEST_F(HostileWatches, WhatNobodyAsksToBeToldIsNotTold) {
  EXPECT_EQ(ask(commands::EventQuery{.event = event_}), CUDA_ERROR_NOT_READY);
  release();
  EXPECT_EQ(ask(commands::EventSynchronize{.event = event_}), CUDA_SUCCESS);
  EXPECT_EQ(Heard::What::kSilence, peer_->read_frame(0.1).what);
}

TEST_F(HostileWatches, OneTokenTwiceIsToldTwice) {
  bool watched = false;
  EXPECT_EQ(watch(7, watched), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(watched);
  EXPECT_EQ(watch(7, watched), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(watched);
  release();
  std::uint64_t result = 1;
  EXPECT_EQ(completions(2, result)[7], 2);
  EXPECT_EQ(result, 0u);
}

TEST_F(HostileWatches, TheirNumberIsBounded) {
  bool watched = false;
  for (std::size_t i = 0; i < wire::kWatchesMax; ++i) {
    ASSERT_EQ(watch(i, watched), CUDA_ERROR_NOT_READY);
    ASSERT_TRUE(watched) << i;
  }
  EXPECT_EQ(watch(999, watched), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(watched);
  EXPECT_EQ(ask(commands::WatchStream{.stream = busy_, .token = 999}), CUDA_ERROR_NOT_READY);
  release();
  std::uint64_t result = 1;
  const auto told = completions(wire::kWatchesMax, result);
  EXPECT_EQ(told.size(), wire::kWatchesMax);
  EXPECT_FALSE(told.contains(999));
  // There is room again.
  EXPECT_EQ(watch(1, watched), CUDA_SUCCESS);
  EXPECT_FALSE(watched);
}

TEST_F(HostileWatches, AnEventThatGoesIsToldNevertheless) {
  bool watched = false;
  EXPECT_EQ(watch(7, watched), CUDA_ERROR_NOT_READY);
  send(commands::EventDestroy{.event = event_});
  release();
  std::uint64_t result = 1;
  EXPECT_EQ(completions(1, result)[7], 1);
}

TEST_F(HostileWatches, TheEndOfAStreamIsItsEndOfThen) {
  EXPECT_EQ(ask(commands::WatchStream{.stream = busy_, .token = 5}), CUDA_ERROR_NOT_READY);
  // What comes later holds nothing up.
  send(commands::StreamMemOp{.stream = busy_,
                             .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                             .address = word_,
                             .value = 2,
                             .flags = CU_STREAM_WAIT_VALUE_EQ});
  release();
  std::uint64_t result = 1;
  EXPECT_EQ(completions(1, result)[5], 1);
  EXPECT_EQ(result, 0u);
  write(other_, 2);
  EXPECT_EQ(ask(commands::StreamSynchronize{.stream = busy_}), CUDA_SUCCESS);
}

TEST_F(HostileWatches, ADoneThatHidesAPostedErrorIsToBeAskedAbout) {
  bool watched = false;
  EXPECT_EQ(watch(7, watched), CUDA_ERROR_NOT_READY);
  send(commands::EventDestroy{.event = handle_as<CUevent>(HandleKind::kEvent, 99)});
  release();
  std::uint64_t result = 0;
  EXPECT_EQ(completions(1, result)[7], 1);
  EXPECT_EQ(result, static_cast<std::uint64_t>(CUDA_ERROR_INVALID_HANDLE));
  EXPECT_EQ(watch(8, watched), CUDA_SUCCESS);
  EXPECT_EQ(posted_, CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(HostileWatches, TheEndOfTheContextEndsThem) {
  ASSERT_EQ(ask(commands::CreateContext{.context = context(2)}), CUDA_SUCCESS);
  current_ = 2;
  const auto stream = handle_as<CUstream>(HandleKind::kStream, 3);
  const auto event = handle_as<CUevent>(HandleKind::kEvent, 3);
  send(commands::StreamCreate{.stream = stream, .flags = CU_STREAM_NON_BLOCKING});
  send(commands::StreamWaitEvent{.stream = stream, .event = event_});
  send(commands::EventCreate{.event = event});
  send(commands::EventRecord{.event = event, .stream = stream});
  EXPECT_EQ(ask(commands::WatchEvent{.event = event, .token = 3}), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ask(commands::WatchStream{.stream = stream, .token = 4}), CUDA_ERROR_NOT_READY);
  send(commands::DestroyContext{.context = context(2)});
  current_ = kPrimary;
  release();
  std::uint64_t result = 0;
  EXPECT_EQ(completions(2, result).size(), 2u);
}

// All workers wait for the stream, some of them for copies from behind it: what comes for them then
// is not acknowledged, so that it takes no more of the server's memory than the credits allow.
TEST_F(HostileWatches, PostedCommandsThatWaitForAWorkerAreInFlight) {
  constexpr std::uint64_t kBytes = 1536 * kKiB;
  constexpr std::size_t kEach = server::Workers::kThreadsMax / 2 + 16;
  ASSERT_EQ(ask(commands::MemAlloc{.bytes = kBytes}), CUDA_SUCCESS);
  commands::MemAlloc::Reply allocated;
  ASSERT_TRUE(wire::decode(fields(), allocated));
  for (std::size_t i = 0; i < kEach; ++i) {
    send(commands::StreamSynchronize{.stream = busy_});
    send(commands::CopyToHost{.stream = busy_,
                              .address = allocated.address,
                              .width = kBytes,
                              .rows = 1,
                              .slices = 1,
                              .delivery = i + 1});
  }
  for (std::uint64_t i = 0; i < 2 * wire::kCommandsInFlightMax; ++i) {
    if (!peer_->send_command(commands::CtxResetPersistingL2Cache::kOp, {}, false, kPrimary).ok()) {
      break;
    }
  }
  const auto ending = peer_->ended();
  EXPECT_TRUE(ending.in_order) << ending.reason;
}

TEST_F(HostileWatches, NothingIsWatchedThatIsNotThere) {
  EXPECT_EQ(ask(commands::WatchEvent{.event = handle_as<CUevent>(HandleKind::kEvent, 50)}),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ask(commands::WatchStream{.stream = handle_as<CUstream>(HandleKind::kStream, 50)}),
            CUDA_ERROR_INVALID_HANDLE);
  release();
}

// The session goes with whatever it watches.
TEST_F(HostileWatches, WhoLeavesWithoutWaitingLeavesNothingBehind) {
  bool watched = false;
  for (std::uint64_t token = 0; token < 10; ++token) {
    EXPECT_EQ(watch(token, watched), CUDA_ERROR_NOT_READY);
  }
}

}  // namespace
}  // namespace flyt::sim
