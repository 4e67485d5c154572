#include "control/daemon/door_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>

#include "base/clock.h"

namespace flyt::control {
namespace {

class UserDoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "flyt-door-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/door.sock";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<std::unique_ptr<transport::Connection>> connect() const {
    return transport::connect(*transport::parse_url("unix://" + path_),
                              system_clock().now() + std::chrono::seconds(60));
  }
  // Whether the other side says "a" before it goes away.
  static bool greeted(transport::Connection& connection) {
    std::array<std::byte, 1> space{};
    const MutableBytes into[] = {std::span(space)};
    const auto count = connection.read(into, transport::Patience::kWait);
    return count && *count == 1 && space[0] == std::byte{'a'};
  }

  const Log log_{"test", LogLevel::kOff};
  std::string folder_;
  std::string path_;
};

TEST_F(UserDoorTest, NamesWhoComes) {
  auto door = UserDoor::open(path_, "api.unix", log_);
  ASSERT_TRUE(door) << door.error().message;
  struct stat found {};
  ASSERT_EQ(::stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  std::atomic<std::uint32_t> came{UINT32_MAX};
  (*door)->start([&](std::uint32_t user, Fd connection) -> Status {
    came = user;
    EXPECT_EQ(::write(connection.get(), "a", 1), 1);
    return {};
  });
  auto connection = connect();
  ASSERT_TRUE(connection);
  EXPECT_TRUE(greeted(**connection));
  EXPECT_EQ(came, ::geteuid());
}

TEST_F(UserDoorTest, WhoIsNotAdmittedIsTurnedAway) {
  auto door = UserDoor::open(path_, "api.unix", log_);
  ASSERT_TRUE(door);
  std::atomic<int> calls{0};
  (*door)->start([&](std::uint32_t, Fd) -> Status {
    ++calls;
    return Error{ErrorCode::kDenied, "not today"};
  });
  for (int i = 1; i <= 3; ++i) {
    auto connection = connect();
    ASSERT_TRUE(connection);
    EXPECT_FALSE(greeted(**connection));
    EXPECT_EQ(calls, i);
  }
}

TEST_F(UserDoorTest, EndsWithoutHavingStarted) {
  ASSERT_TRUE(UserDoor::open(path_, "api.unix", log_));
  auto door = UserDoor::open(path_, "api.unix", log_);
  ASSERT_TRUE(door);
  const auto second = UserDoor::open(path_, "api.unix", log_);
  ASSERT_FALSE(second) << "the first one listens";
  EXPECT_TRUE(second.error().message.ends_with("name another address with api.unix"));
}

TEST_F(UserDoorTest, WhoIsRefusedAgainAndAgainDoesNotFillTheLog) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const Fd reading(ends[0]);
  const Fd writing(ends[1]);
  auto door = UserDoor::open(path_, "api.unix", Log("test", LogLevel::kInfo, writing.get()));
  ASSERT_TRUE(door) << door.error().message;
  (*door)->start([](std::uint32_t, Fd) { return Status(Error{ErrorCode::kDenied, "nobody"}); });
  const Instant begun = system_clock().now();
  constexpr std::uint32_t kTimes = 4 * LogLimit::kLinesMax;
  for (std::uint32_t i = 0; i < kTimes; ++i) {
    auto connection = connect();
    ASSERT_TRUE(connection);
    EXPECT_FALSE(greeted(**connection));
  }
  door->reset();
  const auto periods = (system_clock().now() - begun) / LogLimit::kPeriod + 2;
  std::string text(1U << 20U, '\0');
  const ssize_t got = ::read(reading.get(), text.data(), text.size());
  ASSERT_GT(got, 0);
  text.resize(static_cast<std::size_t>(got));
  std::int64_t lines = 0;
  for (std::size_t at = text.find("refused"); at != std::string::npos;
       at = text.find("refused", at + 1)) {
    ++lines;
  }
  EXPECT_GE(lines, LogLimit::kLinesMax);
  EXPECT_LE(lines, periods * LogLimit::kLinesMax);
}

}  // namespace
}  // namespace flyt::control
