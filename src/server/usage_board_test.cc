#include "server/usage_board.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace flyt::server {
namespace {

std::unique_ptr<UsageBoard> make_board(std::size_t slots) {
  auto board = UsageBoard::create(slots);
  EXPECT_TRUE(board.ok());
  return std::move(board).value();
}

TEST(UsageBoard, ShowsWhatAnotherProcessHas) {
  const auto board = make_board(4);
  const std::size_t slot = board->claim();
  const pid_t child = ::fork();
  if (child == 0) {
    const UsageSlot mine = board->slot(slot);
    mine.publish(4711, "vm-1");
    mine.took(1, 100);
    mine.took(1, 28);
    mine.gave(1, 100);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(board->uses(0).empty());
  const auto uses = board->uses(1);
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses[0].client_process, 4711U);
  EXPECT_EQ(uses[0].server_process, static_cast<std::uint32_t>(child));
  EXPECT_EQ(uses[0].machine, "vm-1");
  EXPECT_EQ(uses[0].bytes, 28U);
  EXPECT_FALSE(uses[0].has_context);
  board->release(slot);
  EXPECT_TRUE(board->uses(1).empty());
}

TEST(UsageBoard, ShowsASessionWithAContextAndNoMemory) {
  const auto board = make_board(1);
  const UsageSlot mine = board->slot(board->claim());
  mine.publish(1, "here");
  mine.context_made(0);
  EXPECT_EQ(board->uses(0).size(), 1U);
  mine.context_ended(0);
  EXPECT_TRUE(board->uses(0).empty());
}

TEST(UsageBoard, ShowsMemoryAsLongAsItsOwnerLives) {
  const auto board = make_board(1);
  const UsageSlot mine = board->slot(board->claim());
  mine.publish(1, "here");
  mine.context_made(2);
  take_usage_slot(mine);
  const auto bytes = [&] { return board->uses(2).at(0).bytes; };
  {
    UsedMemory first(2, 100);
    EXPECT_EQ(bytes(), 100U);
    UsedMemory second(std::move(first));
    EXPECT_EQ(bytes(), 100U);
    second.resize(250);
    EXPECT_EQ(bytes(), 250U);
    second.resize(30);
    EXPECT_EQ(bytes(), 30U);
    UsedMemory third(2, 5);
    EXPECT_EQ(bytes(), 35U);
    third = std::move(second);
    EXPECT_EQ(bytes(), 30U);
    EXPECT_EQ(third.bytes(), 30U);
  }
  EXPECT_EQ(bytes(), 0U);
  take_usage_slot(UsageSlot());
}

TEST(UsageBoard, ShowsNobodyBeforeItsClientIsKnown) {
  const auto board = make_board(1);
  board->slot(board->claim()).took(0, 5);
  EXPECT_TRUE(board->uses(0).empty());
}

TEST(UsageBoard, HandsOutEachPlaceOnceAndHasAnEnd) {
  const auto board = make_board(2);
  const std::size_t first = board->claim();
  EXPECT_NE(board->claim(), first);
  EXPECT_EQ(board->claim(), UsageBoard::kNoSlot);
  board->release(first);
  EXPECT_EQ(board->claim(), first);
  board->release(UsageBoard::kNoSlot);
}

TEST(UsageBoard, IgnoresDevicesThatItHasNoPlaceFor) {
  const auto board = make_board(1);
  const UsageSlot mine = board->slot(board->claim());
  mine.publish(1, std::string(500, 'm'));
  mine.took(-1, 5);
  mine.took(static_cast<CUdevice>(kUsageDevicesMax), 5);
  EXPECT_TRUE(board->uses(-1).empty());
  EXPECT_TRUE(board->uses(0).empty());
  UsageSlot().took(0, 5);
}

}  // namespace
}  // namespace flyt::server
