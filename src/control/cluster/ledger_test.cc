#include "control/cluster/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "base/fd.h"
#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

// A ledger that logs to a pipe.
class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
    reading_ = Fd(ends[0]);
    writing_ = Fd(ends[1]);
    ledger_.emplace(std::make_unique<testing::MemoryStore>(entries_, fuse_, full_),
                    Log("test", LogLevel::kInfo, writing_.get()), kEventsMax, kEventsMax);
    ASSERT_TRUE(ledger_->start());
  }
  void happens(const std::string& vm, std::uint32_t times) {
    for (std::uint32_t i = 0; i < times; ++i) {
      Batch batch;
      batch.event("gpu-placed", "node", vm, "");
      ASSERT_TRUE(ledger_->commit(std::move(batch)));
    }
  }
  // All that was logged, to the end.
  std::string log() {
    ledger_.reset();
    std::string text(1U << 20U, '\0');
    const ssize_t got = ::read(reading_.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }
  static std::uint64_t count(const std::string& text, const std::string& what) {
    std::uint64_t times = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++times;
    return times;
  }

  static constexpr std::uint64_t kEventsMax = 1000;
  testing::Entries entries_;
  testing::Fuse fuse_;
  bool full_ = false;
  Fd reading_;
  Fd writing_;
  std::optional<Ledger> ledger_;
};

TEST_F(LedgerTest, AVmDoesNotFillTheLogAndTakesNoLineFromOthers) {
  const auto period = [] { return system_clock().now().ns / LogLimit::kPeriod.count(); };
  const auto begun = period();
  constexpr std::uint32_t kTimes = 5 * LogLimit::kLinesMax;
  happens("busy", kTimes);
  for (const char* vm : {"a", "b", "c"}) happens(vm, 1);
  happens("", 2);
  const auto periods = static_cast<std::uint64_t>(period() - begun + 1);
  // Each is an event all the same.
  EXPECT_EQ(ledger_->events(0).size(), kTimes + 5);
  const std::string text = log();
  const std::uint64_t told = count(text, "vm=busy ");
  EXPECT_GE(told, LogLimit::kLinesMax);
  EXPECT_LE(told, periods * LogLimit::kLinesMax);
  for (const char* vm : {"a", "b", "c"}) EXPECT_EQ(count(text, std::string("vm=") + vm + " "), 1U);
  EXPECT_EQ(count(text, "vm=\"\" "), 2U);
  std::uint64_t left_out = 0;
  constexpr std::string_view kCount = "too many lines=";
  for (std::size_t at = 0; (at = text.find(kCount, at)) != text.npos; ++at) {
    left_out += std::stoull(text.substr(at + kCount.size()));
  }
  EXPECT_EQ(told + left_out, kTimes);
  EXPECT_GE(count(text, " of=busy\n"), 1U);
}

}  // namespace
}  // namespace flyt::cluster
