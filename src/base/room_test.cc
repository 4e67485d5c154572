#include "base/room.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/testing/hand_clock.h"

namespace flyt {
namespace {

constexpr std::uint64_t kSession = 77;
constexpr std::uint32_t kKeptSeconds = 10;

// Each open stands for a process: locks are of opens.
class RoomTest : public ::testing::Test {
 protected:
  RoomTest() {
    std::string pattern = ::testing::TempDir() + "flyt-room-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RoomTest() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<Room> process() const {
    auto room = Room::open(folder_ + "/room", clock_);
    EXPECT_TRUE(room.ok()) << (room ? "" : room.error().message);
    return std::move(*room);
  }
  // With a place; null: there was none.
  std::unique_ptr<Room> process(Room::Kind kind, std::uint32_t most, std::uint64_t returns = 0) {
    auto room = process();
    return room->enter(kind, returns, most) ? std::move(room) : nullptr;
  }
  std::unique_ptr<Room> session(std::uint32_t most, std::uint64_t returns = 0) {
    return process(Room::Kind::kSession, most, returns);
  }
  std::string folder_;
  HandClock clock_;
};

TEST_F(RoomTest, SoManyProcessesHaveAPlaceUntilTheyEnd) {
  auto one = session(2);
  const auto ready = process(Room::Kind::kReady, 2);
  ASSERT_NE(nullptr, one);
  ASSERT_NE(nullptr, ready);
  EXPECT_EQ(nullptr, session(2));
  EXPECT_EQ(nullptr, process(Room::Kind::kReady, 2));
  const auto watcher = process();
  EXPECT_EQ(1U, watcher->count().sessions);
  EXPECT_EQ(1U, watcher->count().ready);
  one.reset();
  EXPECT_EQ(1U, watcher->count().used());
  EXPECT_NE(nullptr, session(2));
}

TEST_F(RoomTest, ASessionThatMayComeBackKeepsItsPlace) {
  auto one = session(1);
  one->keep(kSession, kKeptSeconds);
  one.reset();
  EXPECT_EQ(1U, process()->count().awaited);
  EXPECT_EQ(nullptr, session(1));
  const auto again = session(1, kSession);
  ASSERT_NE(nullptr, again);
  EXPECT_EQ(1U, process()->count().used());
}

TEST_F(RoomTest, OfAPlaceThatASessionHadItDoesNotMatterHowManyThereAre) {
  auto one = session(2);
  const auto two = session(2);
  one->keep(kSession, kKeptSeconds);
  // The process before it has not quite ended.
  auto again = session(1, kSession);
  ASSERT_NE(nullptr, again);
  one.reset();
  EXPECT_EQ(0U, process()->count().awaited);
  EXPECT_EQ(nullptr, session(2));
  // One that ends before it has gone on loses nothing.
  again.reset();
  EXPECT_EQ(nullptr, session(2));
  EXPECT_NE(nullptr, session(1, kSession));
}

TEST_F(RoomTest, AStrangerWhoClaimsToComeBackIsANewSession) {
  const auto one = session(1);
  EXPECT_EQ(nullptr, session(1, kSession));
}

TEST_F(RoomTest, APlaceIsKeptForSoLongAndNoLonger) {
  auto one = session(1);
  one->keep(kSession, kKeptSeconds);
  one.reset();
  // Who looks first starts the clock.
  EXPECT_EQ(nullptr, session(1));
  clock_.pass(std::chrono::seconds(kKeptSeconds) - Duration(1));
  EXPECT_EQ(nullptr, session(1));
  clock_.pass(Duration(1));
  EXPECT_EQ(0U, process()->count().used());
  EXPECT_NE(nullptr, session(1));
}

TEST_F(RoomTest, ASessionThatIsOverKeepsNothing) {
  auto one = session(1);
  one->keep(kSession, kKeptSeconds);
  one->forget();
  one.reset();
  EXPECT_NE(nullptr, session(1));
}

TEST_F(RoomTest, WhoLooksAfterProcessesSaysWhatBecomesOfTheirPlaces) {
  const auto watcher = process();
  const auto own = static_cast<std::uint32_t>(::getpid());
  auto one = session(1);
  one->keep(kSession, kKeptSeconds);
  // It lives.
  watcher->note_end(own, false);
  one.reset();
  watcher->note_end(own, true);
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(nullptr, session(1));
  EXPECT_EQ(1U, watcher->count().awaited);
  watcher->note_end(own, false);
  EXPECT_NE(nullptr, session(1));
}

TEST_F(RoomTest, AProcessThatIsReadyBecomesASessionWhereItIs) {
  auto gone = session(2);
  gone->keep(kSession, kKeptSeconds);
  const auto ready = process(Room::Kind::kReady, 2);
  gone.reset();
  ready->serve(kSession);
  const Room::Count count = process()->count();
  EXPECT_EQ(1U, count.sessions);
  EXPECT_EQ(1U, count.used());
}

TEST_F(RoomTest, AProcessThatIsReadyGivesWayToWhomIsWaiting) {
  const auto one = process(Room::Kind::kReady, 2);
  const auto two = process(Room::Kind::kReady, 2);
  EXPECT_FALSE(one->gives_way(2));
  const std::uint32_t before = one->wanted();
  const auto late = process();
  {
    const Room::Waiting waiting(*late, Room::Why::kLimit);
    EXPECT_NE(before, one->wanted());
    EXPECT_TRUE(one->gives_way(2));
    // One is enough.
    EXPECT_FALSE(two->gives_way(2));
    EXPECT_EQ(nullptr, process(Room::Kind::kReady, 2));
    EXPECT_TRUE(late->enter(Room::Kind::kSession, 0, 2));
  }
  EXPECT_EQ(nullptr, session(2));
}

TEST_F(RoomTest, WhatTheDriverRefusesMakesOneGiveWayAlthoughThereIsRoom) {
  const auto ready = process(Room::Kind::kReady, 8);
  const auto one = session(8);
  const Room::Waiting waiting(*one, Room::Why::kDriver);
  EXPECT_TRUE(ready->gives_way(8));
}

TEST_F(RoomTest, RefusalsAreCounted) {
  const auto one = process();
  one->count_refusal(Room::Why::kLimit);
  process()->count_refusal(Room::Why::kLimit);
  one->count_refusal(Room::Why::kDriver);
  EXPECT_EQ(2U, process()->refusals(Room::Why::kLimit));
  EXPECT_EQ(1U, process()->refusals(Room::Why::kDriver));
}

}  // namespace
}  // namespace flyt
