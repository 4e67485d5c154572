// A Channel against an Endpoint, over every kind of connection.
#include "rpc/channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "base/testing/forks.h"
#include "rpc/testing/forwarding_connection.h"
#include "rpc/testing/session.h"

namespace flyt::rpc {
namespace {

using namespace testing;

class ChannelOver : public ::testing::TestWithParam<PairKind> {
 protected:
  Session session{make_pair(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Kinds, ChannelOver,
                         ::testing::Values(PairKind::kUnix, PairKind::kTcp, PairKind::kSim,
                                           PairKind::kShm),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(ChannelOver, AnswersACallWithWhatTheServerReplied) {
  ASSERT_NE(session.channel, nullptr) << session.open_error;
  EXPECT_EQ(session.channel->welcome().name, "test");
  const Result<std::string> answer = echo(*session.channel, "hello");
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, "hello");
}

TEST_P(ChannelOver, CarriesRepliesOfEverySize) {
  for (const std::size_t size : {0, 1, 511, 512, 513, 16 * 1024, 200 * 1024}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(pattern(i));
    const Result<std::string> answer = echo(*session.channel, text);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(*answer, text) << size;
  }
}

TEST_P(ChannelOver, ExecutesPostsInTheOrderOfTheirBeginning) {
  constexpr int kPosts = 5000;
  for (int i = 0; i < kPosts; ++i) ASSERT_TRUE(post_note(*session.channel, std::to_string(i)));
  ASSERT_TRUE(session.channel->close(soon()).ok());
  session.server.stop();
  ASSERT_EQ(session.server.notes.size(), static_cast<std::size_t>(kPosts));
  for (int i = 0; i < kPosts; ++i) EXPECT_EQ(session.server.notes[i], std::to_string(i));
  EXPECT_TRUE(session.server.in_order);
}

TEST_P(ChannelOver, ForgetsACommandThatWasNotCommitted) {
  { const Post dropped = session.channel->begin(kOpNote, 100, 0); }
  ASSERT_TRUE(post_note(*session.channel, "kept"));
  ASSERT_TRUE(session.channel->close(soon()).ok());
  session.server.stop();
  EXPECT_EQ(session.server.notes, std::vector<std::string>{"kept"});
}

TEST_P(ChannelOver, SendsBulkFromUserMemoryInOrderWithPosts) {
  constexpr std::size_t kBytes = 3 * 1000 * 1000 + 7;
  std::vector<std::byte> data(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) data[i] = pattern(i);
  for (std::size_t offset = 0; offset < kBytes; offset += wire::kBulkBytesMax) {
    const std::size_t size = std::min<std::size_t>(wire::kBulkBytesMax, kBytes - offset);
    std::array<std::byte, 8> fields;
    Writer(fields).write(std::uint64_t{offset});
    ASSERT_TRUE(session.channel->post_bulk(kOpBulk, 0, fields, Bytes(data).subspan(offset, size)));
    ASSERT_TRUE(post_note(*session.channel, "between"));
  }
  ASSERT_TRUE(session.channel->close(soon()).ok());
  session.server.stop();
  EXPECT_EQ(session.server.bulk, data);
}

TEST_P(ChannelOver, GathersBulkFromManyPieces) {
  std::vector<std::byte> data(200 * 100);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = pattern(i);
  std::vector<Bytes> pieces;
  for (std::size_t i = 0; i < 200; ++i) pieces.push_back(Bytes(data).subspan(i * 100, 100));
  std::array<std::byte, 8> fields{};
  Reply reply;
  ASSERT_TRUE(session.channel->call_bulk(kOpBulk, 0, fields, pieces, reply).ok());
  ASSERT_TRUE(session.channel->close(soon()).ok());
  session.server.stop();
  EXPECT_EQ(session.server.bulk, data);
}

TEST_P(ChannelOver, ReadsHostDataStraightIntoTheNamedMemory) {
  for (const std::uint64_t size : {1, 4, 4096, 100'000, 5'000'000}) {
    std::vector<std::byte> memory(size);
    const Delivery delivery =
        session.channel->expect(Destination::flat(memory.data(), memory.size()));
    Post post = session.channel->begin(kOpCopyOut, 16, 0, Answer::kReply);
    ASSERT_TRUE(post);
    post.writer().write(delivery.id());
    post.writer().write(size);
    Reply reply;
    ASSERT_TRUE(session.channel->call(std::move(post), reply).ok());
    EXPECT_TRUE(delivery.complete());
    for (std::uint64_t i = 0; i < size; ++i) ASSERT_EQ(memory[i], pattern(i)) << i;
  }
}

TEST_P(ChannelOver, SpreadsHostDataOverRowsAndSlices) {
  constexpr std::uint64_t kRow = 30, kRows = 17, kPitch = 64, kSlices = 5, kSlicePitch = 2000;
  std::vector<std::byte> memory(kSlices * kSlicePitch, std::byte{0xee});
  const Destination destination{memory.data(), kRow, kRows, kPitch, kSlices, kSlicePitch};
  const Delivery delivery = session.channel->expect(destination);
  Post post = session.channel->begin(kOpCopyOut, 16, 0, Answer::kReply);
  post.writer().write(delivery.id());
  post.writer().write(destination.bytes());
  Reply reply;
  ASSERT_TRUE(session.channel->call(std::move(post), reply).ok());
  ASSERT_TRUE(delivery.complete());
  std::uint64_t packed = 0;
  std::vector<std::byte> expected(memory.size(), std::byte{0xee});
  for (std::uint64_t slice = 0; slice < kSlices; ++slice) {
    for (std::uint64_t row = 0; row < kRows; ++row) {
      for (std::uint64_t i = 0; i < kRow; ++i) {
        expected[slice * kSlicePitch + row * kPitch + i] = pattern(packed++);
      }
    }
  }
  EXPECT_EQ(memory, expected);
}

TEST_P(ChannelOver, FillsAPostedCopyWhileNobodyCalls) {
  std::vector<std::byte> memory(300'000);
  const std::uint64_t id =
      session.channel->expect_detached(Destination::flat(memory.data(), memory.size()));
  Post post = session.channel->begin(kOpCopyOutPosted, 16, 0);
  post.writer().write(id);
  post.writer().write(std::uint64_t{memory.size()});
  post.commit();
  while (session.pushes.delivered.load() != id) std::this_thread::yield();
  for (std::uint64_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory[i], pattern(i));
}

TEST_P(ChannelOver, BringsHostCallsWhileTheyAreExpected) {
  session.channel->expect_pushes(1);
  Post post = session.channel->begin(kOpHostCall, 8, 0);
  post.writer().write(std::uint64_t{4711});
  post.commit();
  while (session.pushes.host_call.load() != 4711) std::this_thread::yield();
  session.channel->expect_pushes(-1);
}

TEST_P(ChannelOver, IsLostWithTheReasonWhenThereAreTooManyHostCalls) {
  session.channel->expect_pushes(1);
  Post post = session.channel->begin(kOpHostCall, 8, 0);
  post.writer().write(TestPushes::kTooMany);
  post.commit();
  while (session.pushes.losses.load() == 0) std::this_thread::yield();
  const std::lock_guard lock(session.pushes.mutex);
  EXPECT_NE(session.pushes.loss.find("more host functions"), std::string::npos)
      << session.pushes.loss;
}

TEST_P(ChannelOver, TellsTheEarliestFailedPostOnce) {
  for (const std::uint32_t result : {700U, 701U}) {
    Post post = session.channel->begin(kOpFail, 4, 0);
    post.writer().write(result);
    post.commit();
  }
  for (const std::uint32_t expected : {700U, 0U}) {
    Post post = session.channel->begin(kOpEcho, 0, 0, Answer::kReply);
    Reply reply;
    ASSERT_TRUE(session.channel->call(std::move(post), reply).ok());
    EXPECT_EQ(reply.result(), 7u);
    EXPECT_EQ(reply.posted_error(), expected);
    EXPECT_EQ(reply.posted_error_sequence(), expected == 0 ? 0u : 1u);
  }
}

TEST_P(ChannelOver, KeepsTheOrderOfThreadsThatSynchroniseOnTheHost) {
  constexpr int kTurns = 300;
  std::atomic<int> turn{0};
  const auto take_turns = [&](int mine) {
    for (int i = mine; i < kTurns; i += 2) {
      while (turn.load() != i) std::this_thread::yield();
      post_note(*session.channel, std::to_string(i));
      turn.store(i + 1);
    }
  };
  std::thread other(take_turns, 1);
  take_turns(0);
  other.join();
  ASSERT_TRUE(session.channel->close(soon()).ok());
  session.server.stop();
  ASSERT_EQ(session.server.notes.size(), static_cast<std::size_t>(kTurns));
  for (int i = 0; i < kTurns; ++i) EXPECT_EQ(session.server.notes[i], std::to_string(i));
  EXPECT_NE(session.server.note_threads[0], session.server.note_threads[1]);
}

TEST_P(ChannelOver, ServesThreeHundredThreadsThatWaitAtOnce) {
  constexpr int kThreads = 300;
  constexpr int kCalls = 5;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const std::string text = std::to_string(t) + "/" + std::to_string(i);
        const Result<std::string> answer = echo(*session.channel, text);
        if (answer && *answer == text) good.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good.load(), kThreads * kCalls);
}

TEST_P(ChannelOver, LetsOtherThreadsWorkWhileOneWaits) {
  std::thread waiting([&] {
    Post post = session.channel->begin(kOpHold, 0, 0, Answer::kReply);
    Reply reply;
    EXPECT_TRUE(session.channel->call(std::move(post), reply).ok());
  });
  while (session.server.commands.load() < 1) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(echo(*session.channel, "x").ok());
  session.server.release_held();
  waiting.join();
}

TEST_P(ChannelOver, WakesEveryCallerWhenTheServerEndsTheSession) {
  constexpr int kThreads = 8;
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Post post = session.channel->begin(kOpHold, 0, 0, Answer::kReply);
      Reply reply;
      const Status status = session.channel->call(std::move(post), reply);
      if (!status && status.error().message == "ended by the server: maintenance") {
        failed.fetch_add(1);
      }
    });
  }
  while (session.server.commands.load() < kThreads) std::this_thread::yield();
  session.server.end("maintenance");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), kThreads);
  EXPECT_FALSE(session.channel->begin(kOpNote, 0, 0));
  EXPECT_EQ(session.pushes.losses.load(), 1);
  EXPECT_EQ(session.channel->error().message, "ended by the server: maintenance");
}

TEST_P(ChannelOver, NoticesADeadServerWithoutAnyCall) {
  session.server.wait_until_open();
  session.server.end("gone");
  while (!session.channel->lost()) std::this_thread::yield();
  EXPECT_FALSE(post_note(*session.channel, "late"));
  EXPECT_FALSE(echo(*session.channel, "late").ok());
  EXPECT_FALSE(session.channel->post_bulk(kOpBulk, 0, {}, Bytes{}).ok());
}

TEST_P(ChannelOver, TellsTheReasonWhyTheServerRefusedACommand) {
  Post post = session.channel->begin(kOpRefuse, 0, 0);
  post.commit();
  const Result<std::string> answer = echo(*session.channel, "x");
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message, "ended by the server: no such op");
}

TEST_P(ChannelOver, HoldsPostersBackWhileTheServerIsBehindAndGoesOnAfterwards) {
  session.server.stalled.store(true);
  constexpr int kPosts = 40'000;  // More than the credits allow.
  std::thread poster([&] {
    for (int i = 0; i < kPosts; ++i) ASSERT_TRUE(post_note(*session.channel, "n"));
  });
  while (session.channel->counters().commands < 1000) std::this_thread::yield();
  session.server.stalled.store(false);
  poster.join();
  ASSERT_TRUE(session.channel->close(soon()).ok());
  session.server.stop();
  EXPECT_EQ(session.server.notes.size(), static_cast<std::size_t>(kPosts));
}

bool post(Channel& channel, std::uint16_t op, std::size_t bytes = 0) {
  Post post = channel.begin(op, bytes, 0);
  if (!post) return false;
  for (std::size_t i = 0; i < bytes; ++i) post.writer().write(std::uint8_t{7});
  post.commit();
  return true;
}

TEST_P(ChannelOver, KeepsCreditsForWhatTheServerMayBeWaitingFor) {
  constexpr int kPosts = 40'000;  // More than the credits allow.
  std::thread poster([&] {
    for (int i = 0; i < kPosts; ++i) ASSERT_TRUE(post(*session.channel, kOpWithhold, 3));
  });
  while (session.channel->counters().credit_waits == 0) std::this_thread::yield();
  {
    // What is not withheld is acknowledged.
    const KeptCredits kept;
    for (int i = 0; i < kPosts; ++i) ASSERT_TRUE(post_note(*session.channel, "kept"));
    ASSERT_TRUE(post(*session.channel, kOpRelease));
  }
  poster.join();
  ASSERT_TRUE(session.channel->close(soon()).ok());
  session.server.stop();
  EXPECT_TRUE(session.server.in_order) << session.server.ended_with;
  EXPECT_EQ(session.server.notes.size(), static_cast<std::size_t>(kPosts));
}

// Of a server that acknowledges all at once there comes no other.
// Counts what a thread writes itself.
class WriterCounter final : public ForwardingConnection {
 public:
  WriterCounter(std::unique_ptr<transport::Connection> inner, std::atomic<int>& written)
      : ForwardingConnection(std::move(inner)), written_(written) {}
  Result<std::size_t> write(std::span<const Bytes> from, transport::Patience patience) override {
    if (std::this_thread::get_id() == thread_) ++written_;
    return ForwardingConnection::write(from, patience);
  }

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  std::atomic<int>& written_;
};

TEST(Channel, SendsItselfWhatFindsItsSenderAsleep) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "the sender never stays awake";
  std::atomic<int> written{0};
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  pair.first = std::make_unique<WriterCounter>(std::move(pair.first), written);
  Session session(std::move(pair), {.sender_spin = std::chrono::nanoseconds(10)});
  ASSERT_NE(session.channel, nullptr) << session.open_error;
  const int at_first = written;
  std::uint64_t posted = 0;
  for (; written == at_first && posted < 100'000; ++posted) {
    ASSERT_TRUE(post_note(*session.channel, "note"));
    while (session.server.commands.load() <= posted) std::this_thread::yield();
  }
  EXPECT_GT(written, at_first) << posted << " were all sent by the sender";
  ASSERT_TRUE(echo(*session.channel, "in order").ok());
  EXPECT_EQ(session.server.commands.load(), posted + 1);
}

TEST(Channel, MissesNoAcknowledgementThatComesJustBeforeItWaits) {
  constexpr std::uint64_t kBatch = 7;
  Session session(make_pair(PairKind::kUnix), {}, {.commands_in_flight = kBatch + 1});
  ASSERT_NE(session.channel, nullptr) << session.open_error;
  session.server.withheld_max.store(kBatch);
  session.channel->expect_pushes(1);
  for (std::uint64_t i = 0; i < 30'000 * kBatch; ++i) {
    ASSERT_TRUE(post(*session.channel, kOpWithhold));
  }
  session.channel->expect_pushes(-1);
}

TEST_P(ChannelOver, EndsAPostedCopyOfNoBytesToo) {
  const std::uint64_t id = session.channel->expect_detached(Destination::flat(nullptr, 0));
  Post post = session.channel->begin(kOpCopyOutPosted, 16, 0);
  post.writer().write(id);
  post.writer().write(std::uint64_t{0});
  post.commit();
  while (session.pushes.delivered.load() != id) std::this_thread::yield();
}

TEST_P(ChannelOver, BelongsToTheParentAfterAFork) {
  ASSERT_TRUE(echo(*session.channel, "before").ok());
  session.channel->expect_pushes(1);
  std::optional<int> status;
  // A child also hangs where the busy thread held a lock of AddressSanitizer's allocator, which
  // knows nothing of forks; but not three times.
  for (int tries = 0; tries < 3 && !status; ++tries) {
    std::thread busy([&] {
      for (int i = 0; i < 200; ++i) ASSERT_TRUE(echo(*session.channel, "busy").ok());
    });
    const pid_t child = ::fork();
    if (child == 0) {
      session.channel->abandon_after_fork();
      const bool refused = !session.channel->begin(kOpNote, 0, 0) &&
                           !echo(*session.channel, "x").ok() &&
                           !session.channel->post_bulk(kOpBulk, 0, {}, Bytes{}).ok() &&
                           session.channel->lost() && !session.channel->error().message.empty();
      ::_exit(refused ? 0 : 1);
    }
    status = status_of(child);
    busy.join();
  }
  EXPECT_EQ(status, std::optional<int>(0));
  EXPECT_TRUE(echo(*session.channel, "after").ok());
  session.channel->expect_pushes(-1);
}

TEST_P(ChannelOver, MovesBulkBothWaysAtOnceWithoutADeadlock) {
  constexpr std::size_t kBytes = 4 * 1000 * 1000;
  constexpr int kThreads = 3;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<std::byte> in(kBytes);
      std::vector<std::byte> out(wire::kBulkBytesMax);
      for (int i = 0; i < 8; ++i) {
        std::array<std::byte, 8> fields{};
        ASSERT_TRUE(session.channel->post_bulk(kOpBulk, 0, fields, out));
      }
      const Delivery delivery = session.channel->expect(Destination::flat(in.data(), in.size()));
      Post post = session.channel->begin(kOpCopyOut, 16, 0, Answer::kReply);
      post.writer().write(delivery.id());
      post.writer().write(std::uint64_t{kBytes});
      Reply reply;
      ASSERT_TRUE(session.channel->call(std::move(post), reply).ok());
      EXPECT_TRUE(delivery.complete());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ChannelOver, CountsWhatWasBegunBeforeTheLossAndCommittedAfterIt) {
  std::atomic<bool> told{false};
  std::uint64_t newest = 0;
  std::thread other;
  {
    Post post = session.channel->begin(kOpNote, 8, 0);
    session.server.end("gone");
    while (!session.channel->lost()) std::this_thread::yield();
    other = std::thread([&] {
      static_cast<void>(session.channel->unanswered());
      newest = session.channel->newest();
      told.store(true);
    });
    const Instant end = system_clock().now() + std::chrono::milliseconds(20);
    while (!told.load() && system_clock().now() < end) std::this_thread::yield();
    EXPECT_FALSE(told.load());
    post.commit();
  }
  other.join();
  EXPECT_EQ(newest, 1U);
}

// The notes of the commands behind that number; nothing if they are not at hand.
std::optional<std::vector<std::string>> notes_behind(Channel& channel, std::uint64_t sequence) {
  const auto commands = channel.newest_behind(sequence);
  if (!commands) return std::nullopt;
  std::vector<std::string> notes;
  for (const Unfinished::Command& command : *commands) {
    EXPECT_EQ(command.header.op, kOpNote);
    EXPECT_EQ(command.header.sequence, ++sequence);
    notes.emplace_back(reinterpret_cast<const char*>(command.payload.data()),
                       command.payload.size());
  }
  return notes;
}

// Through many turns of the buffer, whatever the lengths; some frames were given up.
TEST_P(ChannelOver, HasItsNewestCommandsAtHandWhenTheSessionIsLost) {
  std::uint64_t posted = 0;
  const auto text_of = [](std::uint64_t sequence) {
    return std::string(sequence * 37 % 300, 'x') + std::to_string(sequence);
  };
  for (const int more : {1, 39, 200, 1000, 3000, 7}) {
    for (int i = 0; i < more; ++i) {
      if (i % 5 == 0) {
        Post dropped = session.channel->begin(kOpNote, 250, 0);
        if (dropped) dropped.writer().write_bytes(bytes_of(std::string(250, 'y')));
      }
      ASSERT_TRUE(post_note(*session.channel, text_of(++posted)));
    }
  }
  ASSERT_EQ(session.channel->newest(), posted);
  session.server.end("gone");
  while (!session.channel->lost()) std::this_thread::yield();
  static_cast<void>(session.channel->unanswered());
  EXPECT_EQ(notes_behind(*session.channel, posted), std::vector<std::string>());
  std::uint64_t at_hand = 0;
  for (std::uint64_t count = 1; count <= 256; ++count) {
    const auto notes = notes_behind(*session.channel, posted - count);
    if (!notes) continue;
    // What is at hand has no gaps.
    ASSERT_EQ(count, ++at_hand);
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ((*notes)[i], text_of(posted - count + i + 1));
    }
  }
  // As many as 8 KiB hold.
  EXPECT_GE(at_hand, 8U * 1024 / (wire::kHeaderBytes + 304) - 2);
  EXPECT_FALSE(notes_behind(*session.channel, posted - 257));
}

TEST_P(ChannelOver, HasNoCommandAtHandThatWasSentFromTheCallersMemory) {
  std::array<std::byte, 8> fields{};
  ASSERT_TRUE(post_note(*session.channel, "before"));
  ASSERT_TRUE(session.channel->post_bulk(kOpBulk, 0, fields, Bytes(fields)));
  ASSERT_TRUE(post_note(*session.channel, "behind"));
  session.server.end("gone");
  while (!session.channel->lost()) std::this_thread::yield();
  static_cast<void>(session.channel->unanswered());
  EXPECT_EQ(notes_behind(*session.channel, 2), std::vector<std::string>{"behind"});
  EXPECT_FALSE(notes_behind(*session.channel, 1));
}

TEST_P(ChannelOver, KeepsDeliveriesApartWhenItGoesOnElsewhere) {
  std::vector<std::byte> memory(100);
  const Destination destination = Destination::flat(memory.data(), memory.size());
  const std::uint64_t before = session.channel->expect_detached(destination);
  session.server.end("gone");
  while (!session.channel->lost()) std::this_thread::yield();
  Session another(make_pair(GetParam()));
  session.channel->go_on_with(std::move(another.channel));
  const std::uint64_t id = session.channel->expect_detached(destination);
  EXPECT_NE(id, before);
  // A thread that is late.
  session.channel->forget(before);
  Post post = session.channel->begin(kOpCopyOutPosted, 16, 0);
  post.writer().write(id);
  post.writer().write(std::uint64_t{memory.size()});
  post.commit();
  while (another.pushes.delivered.load() != id) std::this_thread::yield();
  EXPECT_EQ(memory.back(), pattern(memory.size() - 1));
  session.channel.reset();
}

}  // namespace
}  // namespace flyt::rpc
