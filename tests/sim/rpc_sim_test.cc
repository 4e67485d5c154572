// A client's Channel and a server's Endpoint over connections that misbehave by a seed.
// FLYT_SIM_SEEDS: how many seeds (default 40); FLYT_SIM_FIRST_SEED: the first.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/random.h"
#include "rpc/testing/session.h"
#include "transport/sim.h"

namespace flyt::rpc {
namespace {

using namespace testing;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

transport::ConnectionPair sim(const transport::SimOptions& options) {
  Result<transport::ConnectionPair> pair = transport::sim_pair(options);
  FLYT_ASSERT(pair.ok());
  return std::move(*pair);
}

// What happened to one step of a conversation.
enum class Step { kRight, kWrong, kFailed };

Step copy_out(Channel& channel, std::size_t size) {
  std::vector<std::byte> memory(size);
  const Delivery delivery = channel.expect(Destination::flat(memory.data(), size));
  Post post = channel.begin(kOpCopyOut, 16, 0, Answer::kReply);
  if (!post) return Step::kFailed;
  post.writer().write(delivery.id());
  post.writer().write(std::uint64_t{size});
  Reply reply;
  if (!channel.call(std::move(post), reply)) return Step::kFailed;
  if (!delivery.complete() || reply.result() != 0) return Step::kWrong;
  for (std::size_t i = 0; i < size; ++i) {
    if (memory[i] != pattern(i)) return Step::kWrong;
  }
  return Step::kRight;
}

Step ask(Channel& channel, std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(pattern(i + size));
  const Result<std::string> answer = echo(channel, text);
  if (!answer) return Step::kFailed;
  return *answer == text ? Step::kRight : Step::kWrong;
}

Step bulk(Channel& channel, std::size_t size) {
  std::vector<std::byte> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = pattern(i);
  const std::array<std::byte, 8> fields{};
  return channel.post_bulk(kOpBulk, 0, fields, data).ok() ? Step::kRight : Step::kFailed;
}

Step note(Channel& channel, std::size_t size) {
  return post_note(channel, std::string(size, 'n')) ? Step::kRight : Step::kFailed;
}

Step random_step(Channel& channel, Random& random) {
  const std::size_t size = random.below(random.one_in(8) ? 60'000 : 300);
  switch (random.below(5)) {
    case 0:
      return ask(channel, size);
    case 1:
      return copy_out(channel, size + 1);
    case 2:
      return bulk(channel, size);
    default:
      return note(channel, size);
  }
}

TEST(RpcSim, KeepsEveryPromiseUnderFragmentsAndDelays) {
  const std::uint64_t first = number_from("FLYT_SIM_FIRST_SEED", 1);
  const std::uint64_t count = number_from("FLYT_SIM_SEEDS", 40);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const transport::SimDirection slow{.delay_max = std::chrono::microseconds(seed % 4 * 20)};
    Session session(sim({.seed = seed, .to_second = slow, .to_first = slow}));
    ASSERT_NE(session.channel, nullptr) << "seed " << seed << ": " << session.open_error;
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 1 + seed % 3; ++t) {
      threads.emplace_back([&session, seed, t] {
        Random random(seed * 31 + t);
        for (int i = 0; i < 40; ++i) {
          EXPECT_EQ(random_step(*session.channel, random), Step::kRight)
              << "seed " << seed << ", thread " << t << ", step " << i;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(session.channel->close(soon()).ok()) << "seed " << seed;
    session.server.stop();
    EXPECT_TRUE(session.server.in_order) << "seed " << seed;
  }
}

TEST(RpcSim, NeverMakesAnAnswerUpWhenTheConnectionBreaksSomewhere) {
  const std::uint64_t first = number_from("FLYT_SIM_FIRST_SEED", 1);
  const std::uint64_t count = number_from("FLYT_SIM_SEEDS", 40) * 4;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Random random(seed);
    transport::SimOptions options{.seed = seed};
    (random.one_in(2) ? options.to_first : options.to_second).cut_after = random.below(40'000);
    Session session(sim(options));
    if (!session.channel) continue;
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 3; ++t) {
      threads.emplace_back([&session, seed, t] {
        Random steps(seed * 31 + t);
        bool failed = false;
        for (int i = 0; i < 30; ++i) {
          const Step step = random_step(*session.channel, steps);
          EXPECT_NE(step, Step::kWrong) << "seed " << seed;
          EXPECT_FALSE(failed && step != Step::kFailed) << "seed " << seed << ": came back";
          failed = failed || step == Step::kFailed;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// A short conversation that touches everything; true if all of it went well.
bool converse(Channel& channel, std::uint64_t cut) {
  const std::array<Step, 7> steps{note(channel, 10),     ask(channel, 30), bulk(channel, 64),
                                  copy_out(channel, 80), note(channel, 0), ask(channel, 0),
                                  copy_out(channel, 1)};
  bool failed = false;
  for (const Step step : steps) {
    EXPECT_NE(step, Step::kWrong) << "cut after byte " << cut;
    EXPECT_FALSE(failed && step != Step::kFailed) << "cut after byte " << cut << ": came back";
    failed = failed || step == Step::kFailed;
  }
  // What is cut off behind the last answer may have been noticed by now, or not.
  EXPECT_TRUE(channel.lost() || !failed) << "cut after byte " << cut;
  return !failed && channel.close(soon()).ok();
}

void cut_at_every_byte(transport::SimDirection transport::SimOptions::*direction) {
  bool whole = false;
  std::uint64_t cut = 0;
  for (; !whole; ++cut) {
    transport::SimOptions options{.seed = cut};
    (options.*direction).cut_after = cut;
    const Instant begin = system_clock().now();
    Session session(sim(options));
    if (session.channel) {
      whole = converse(*session.channel, cut) && session.server.stop_in_order();
    } else {
      EXPECT_FALSE(session.open_error.empty());
    }
    EXPECT_LT(system_clock().now() - begin, std::chrono::seconds(60)) << cut;
    ASSERT_LT(cut, 5000u) << "the conversation never went well";
  }
  EXPECT_GT(cut, 300u);
}

TEST(RpcSim, FailsPromptlyWhereverTheClientsBytesAreCut) {
  cut_at_every_byte(&transport::SimOptions::to_second);
}

TEST(RpcSim, FailsPromptlyWhereverTheServersBytesAreCut) {
  cut_at_every_byte(&transport::SimOptions::to_first);
}

}  // namespace
}  // namespace flyt::rpc
