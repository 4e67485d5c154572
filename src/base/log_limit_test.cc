#include "base/log_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace flyt {
namespace {

Instant period(int number) { return {LogLimit::kPeriod.count() * number}; }

TEST(LogLimit, CountsWhatIsBeyondTheLimitOfAPeriod) {
  LogLimit limit;
  for (std::uint32_t i = 0; i < LogLimit::kLinesMax; ++i) EXPECT_TRUE(limit.take(period(7)));
  EXPECT_EQ(limit.left_out(period(7)), 0U);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(limit.take(period(7)));
  // Not before it is known how many they are; and once.
  EXPECT_EQ(limit.left_out(period(7)), 0U);
  EXPECT_EQ(limit.left_out(period(8)), 3U);
  EXPECT_EQ(limit.left_out(period(8)), 0U);
}

TEST(LogLimit, EachPeriodHasItsOwn) {
  LogLimit limit;
  for (int number : {3, 4, 900}) {
    std::uint32_t taken = 0;
    for (std::uint32_t i = 0; i < 3 * LogLimit::kLinesMax; ++i) {
      if (limit.take(period(number))) ++taken;
    }
    EXPECT_EQ(taken, LogLimit::kLinesMax) << number;
  }
  EXPECT_EQ(limit.left_out(), 6 * LogLimit::kLinesMax);
  // One whose clock was read before the last period began is in that one.
  EXPECT_FALSE(limit.take(period(4)));
}

TEST(LogLimit, WhoSleepsIsAwakeWhenThereIsSomethingToTell) {
  LogLimit limit;
  const Instant now = period(5) + std::chrono::seconds(3);
  EXPECT_EQ(limit.limit(-1, now), -1);
  EXPECT_EQ(limit.limit(60'000, now), 60'000);
  while (limit.take(now)) {
  }
  EXPECT_EQ(limit.limit(-1, now), 7001);
  EXPECT_EQ(limit.limit(60'000, now), 7001);
  EXPECT_EQ(limit.limit(20, now), 20);
  EXPECT_EQ(limit.left_out(now + std::chrono::milliseconds(7001)), 1U);
  EXPECT_EQ(limit.limit(-1, now), -1);
}

TEST(LogLimit, IsSharedByThreadsAndProcesses) {
  const auto limits = LogLimits::shared();
  LogLimit& limit = limits->refusals();
  const auto ask = [&limit] {
    for (std::uint32_t i = 0; i < 2 * LogLimit::kLinesMax; ++i) limit.take(period(1));
  };
  const pid_t child = ::fork();
  if (child == 0) {
    ask();
    ::_exit(0);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(ask);
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(limit.left_out(period(2)), 7 * LogLimit::kLinesMax);
}

TEST(LogLimit, ALogHasSoManyLinesAndTheNumberOfTheOthers) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const Fd reading(ends[0]);
  const Fd writing(ends[1]);
  LogLimit limit;
  const Log log("server", LogLevel::kInfo, writing.get());
  const LimitedLog limited(log, limit);
  constexpr std::uint32_t kAsked = 5 * LogLimit::kLinesMax;
  for (std::uint32_t i = 0; i < kAsked; ++i) limited.warn("client refused", {{"number", i}});
  limited.finish();
  std::string text(1U << 20U, '\0');
  const ssize_t got = ::read(reading.get(), text.data(), text.size());
  ASSERT_GT(got, 0);
  text.resize(static_cast<std::size_t>(got));
  // A period may have ended meanwhile.
  std::uint32_t lines = 0;
  std::uint64_t left_out = 0;
  constexpr std::string_view kCount = "too many lines=";
  for (std::size_t at = text.find("refused"); at != std::string::npos;
       at = text.find("refused", at + 1)) {
    ++lines;
  }
  for (std::size_t at = text.find(kCount); at != std::string::npos;
       at = text.find(kCount, at + 1)) {
    left_out += std::stoull(text.substr(at + kCount.size()));
  }
  EXPECT_LE(lines, 2 * LogLimit::kLinesMax) << text;
  EXPECT_EQ(lines + left_out, kAsked);
}

// What a log that is written to a pipe has got so far.
std::string written_to(const Fd& reading) {
  std::string text(1U << 20U, '\0');
  const ssize_t got = ::read(reading.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

std::uint32_t count(const std::string& text, std::string_view what) {
  std::uint32_t times = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++times;
  return times;
}

TEST(LogLimits, SessionsTroublesAreTheirOthersAreLeftOutAndDebugIsAllThere) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const Fd reading(ends[0]);
  const Fd writing(ends[1]);
  ::fcntl(writing.get(), F_SETPIPE_SZ, 1 << 20);
  const auto limits = LogLimits::shared();
  const Log plain("server", LogLevel::kDebug, writing.get());
  const Log log = plain.limited(*limits);
  constexpr std::uint32_t kAsked = 2 * LogLimits::kSessionLinesMax;
  const auto period = [] { return system_clock().now().ns / LogLimits::kSessionPeriod.count(); };
  const auto begun = period();
  for (std::uint32_t i = 0; i < kAsked; ++i) log.info("began", {});
  for (std::uint32_t i = 0; i < kAsked; ++i) log.debug("looked", {});
  log.warn("faulted", {});
  log.error("failed", {});
  limits->finish(plain);
  const auto periods = static_cast<std::uint32_t>(period() - begun + 1);
  const std::string text = written_to(reading);
  const std::uint32_t told = count(text, " began");
  EXPECT_GE(told, LogLimits::kSessionLinesMax);
  EXPECT_LE(told, periods * LogLimits::kSessionLinesMax);
  EXPECT_EQ(count(text, " looked"), kAsked);
  EXPECT_EQ(count(text, " faulted") + count(text, " failed"), 2U);
  const std::string left_out = "lines=" + std::to_string(kAsked - told) + " of=sessions\n";
  EXPECT_TRUE(told == kAsked || count(text, left_out) == 1) << text.substr(text.size() - 300);
}

TEST(LogLimits, TroublesAreLimitedToo) {
  const auto limits = LogLimits::shared();
  const Log log = Log("server", LogLevel::kInfo, -1).limited(*limits);
  for (std::uint32_t i = 0; i < 10 * LogLimit::kLinesMax; ++i) log.warn("faulted", {});
  EXPECT_GT(limits->sessions(LogLevel::kError).left_out(), 0U);
  EXPECT_EQ(limits->sessions(LogLevel::kInfo).left_out(), 0U);
}

TEST(LogLimit, WhatTheLevelHidesIsNotCounted) {
  LogLimit limit;
  const Log log("server", LogLevel::kWarn, -1);
  const LimitedLog limited(log, limit);
  for (std::uint32_t i = 0; i < 3 * LogLimit::kLinesMax; ++i) limited.info("client refused", {});
  EXPECT_EQ(limit.left_out(), 0U);
}

}  // namespace
}  // namespace flyt
