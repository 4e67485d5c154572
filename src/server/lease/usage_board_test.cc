#include "server/lease/usage_board.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

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
    mine.publish({.process = 4711, .machine = "vm-1"});
    const bool reserved = mine.reserve(1, 100) && mine.reserve(1, 28);
    mine.gave(1, 100);
    ::_exit(reserved ? 0 : 1);
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

TEST(UsageBoard, IsFoundAgainByTheNextServer) {
  std::size_t kept = 0;
  std::size_t lost = 0;
  Fd file;
  {
    const auto board = make_board(4);
    ASSERT_TRUE(board->set_quota(1000, UsageBoard::Shrink::kRefuse));
    board->request_drain(3);
    kept = board->claim();
    lost = board->claim();
    for (const std::size_t slot : {kept, lost}) {
      board->slot(slot).publish({.process = 4711, .machine = "vm-1"});
      ASSERT_TRUE(board->slot(slot).reserve(0, 100));
    }
    board->hold(kept);
    board->claim();
    file = Fd(::dup(board->file().get()));
  }
  auto adopted = UsageBoard::adopt(Fd(::dup(file.get())));
  ASSERT_TRUE(adopted.ok()) << adopted.error().message;
  UsageBoard& board = **adopted;
  EXPECT_FALSE(board.draining());
  const auto left = board.left();
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].process, static_cast<std::uint32_t>(::getpid()));
  EXPECT_TRUE(board.held(left[0].slot));
  EXPECT_FALSE(board.held(left[1].slot));
  // Nobody is in them, and what they have counts.
  EXPECT_TRUE(board.rows().empty());
  EXPECT_EQ(board.moving().behind, 0U);
  EXPECT_EQ(board.quota().used, 200U);
  EXPECT_EQ(board.quota().limit, 1000U);
  board.release(lost);
  EXPECT_EQ(board.quota().used, 100U);
  const std::size_t fresh = board.claim();
  EXPECT_NE(fresh, kept);
  EXPECT_FALSE(board.slot(fresh).reserve(0, 901));
  EXPECT_TRUE(board.slot(fresh).reserve(0, 900));
}

TEST(UsageBoard, TakesSessionsOnlyWhileTheyAreReady) {
  const auto board = make_board(2);
  const std::size_t slot = board->claim();
  const UsageSlot mine = board->slot(slot);
  EXPECT_FALSE(board->ready(slot));
  mine.publish({.process = 1, .machine = "here"});
  EXPECT_FALSE(mine.handover());
  board->set_handover(true);
  EXPECT_TRUE(mine.handover());
  EXPECT_FALSE(board->ready(slot));
  EXPECT_FALSE(board->take(slot));
  mine.ready();
  EXPECT_TRUE(board->ready(slot));
  EXPECT_TRUE(mine.busy_again());
  EXPECT_FALSE(board->take(slot));
  mine.ready();
  // No keeper has what it goes on with.
  EXPECT_FALSE(board->take(slot));
  board->hold(slot);
  EXPECT_TRUE(board->take(slot));
  EXPECT_FALSE(mine.busy_again());
  board->give_back(slot);
  EXPECT_TRUE(mine.busy_again());
  // Nobody waits for those that have nothing to lose.
  const std::size_t monitor = board->claim();
  board->slot(monitor).publish({.process = 1, .machine = "here", .kind = SessionKind::kMonitor});
  EXPECT_TRUE(board->ready(monitor));
  EXPECT_TRUE(board->take(monitor));
}

TEST(UsageBoard, AdoptsNothingThatIsNoBoard) {
  const auto refused = [](std::size_t bytes) {
    Fd file(::memfd_create("no-board", MFD_CLOEXEC));
    EXPECT_EQ(0, ::ftruncate(file.get(), static_cast<off_t>(bytes)));
    return !UsageBoard::adopt(std::move(file)).ok();
  };
  EXPECT_TRUE(refused(0));
  EXPECT_TRUE(refused(4096));
  EXPECT_TRUE(refused(1 << 20));
  EXPECT_FALSE(UsageBoard::adopt(Fd()).ok());
  const auto board = make_board(2);
  ASSERT_EQ(0, ::ftruncate(board->file().get(), 64 << 10));
  EXPECT_FALSE(UsageBoard::adopt(Fd(::dup(board->file().get()))).ok());
}

TEST(UsageBoard, ShowsASessionWithAContextAndNoMemory) {
  const auto board = make_board(1);
  const UsageSlot mine = board->slot(board->claim());
  mine.publish({.process = 1, .machine = "here"});
  mine.context_made(0);
  EXPECT_EQ(board->uses(0).size(), 1U);
  mine.context_ended(0);
  EXPECT_TRUE(board->uses(0).empty());
}

TEST(UsageBoard, ShowsMemoryAsLongAsItsOwnerLives) {
  const auto board = make_board(1);
  const UsageSlot mine = board->slot(board->claim());
  mine.publish({.process = 1, .machine = "here"});
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
  EXPECT_TRUE(board->slot(board->claim()).reserve(0, 5));
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
  const std::string machine(500, 'm');
  mine.publish({.process = 1, .machine = machine});
  EXPECT_TRUE(mine.reserve(-1, 5));
  EXPECT_TRUE(mine.reserve(static_cast<CUdevice>(kUsageDevicesMax), 5));
  EXPECT_TRUE(board->uses(-1).empty());
  EXPECT_TRUE(board->uses(0).empty());
  EXPECT_TRUE(UsageSlot().reserve(0, 5));
}

TEST(UsageBoard, ReservesUpToTheQuotaAndNoByteMore) {
  const auto board = make_board(2);
  const UsageSlot a = board->slot(board->claim());
  const UsageSlot b = board->slot(board->claim());
  EXPECT_TRUE(board->set_quota(100, UsageBoard::Shrink::kRefuse));
  EXPECT_TRUE(a.reserve(0, 60));
  EXPECT_FALSE(b.reserve(0, 41));
  EXPECT_TRUE(b.reserve(0, 40));
  EXPECT_FALSE(b.reserve(0, 1));
  EXPECT_FALSE(b.reserve(0, ~std::uint64_t{0}));
  EXPECT_TRUE(b.reserve(0, 0));
  EXPECT_TRUE(b.reserve(1, 1000)) << "a quota is of the first GPU";
  a.gave(0, 60);
  EXPECT_EQ(b.quota().left(), 60U);
  EXPECT_TRUE(b.reserve(0, 60));
}

TEST(UsageBoard, KnowsWhetherAllHaveHeededAShortage) {
  const auto board = make_board(4);
  const UsageSlot a = board->slot(board->claim());
  const UsageSlot b = board->slot(board->claim());
  const std::size_t third = board->claim();
  const UsageSlot c = board->slot(third);
  for (const UsageSlot& slot : {a, b, c}) slot.publish({.process = 1});
  const std::uint32_t first = a.tell_shortage();
  EXPECT_EQ(first, b.shortages());
  EXPECT_TRUE(a.all_heeded(first)) << "nobody has any memory";
  b.took(0, 10);
  c.took(0, 10);
  EXPECT_FALSE(a.all_heeded(first));
  b.heeded(first, false);
  EXPECT_FALSE(a.all_heeded(first));
  EXPECT_TRUE(c.all_heeded(first)) << "its own is not asked for";
  c.heeded(first, true);
  EXPECT_TRUE(a.all_heeded(first));
  const std::uint32_t second = a.tell_shortage();
  EXPECT_FALSE(a.all_heeded(second));
  b.heeded(second, false);
  EXPECT_TRUE(a.all_heeded(second)) << "one of them is quiet";
  c.heeded(first, false);
  EXPECT_FALSE(a.all_heeded(second));
  board->release(third);
  EXPECT_TRUE(a.all_heeded(second));
}

TEST(UsageBoard, KnowsWhoLeavesAndHasMemoryYet) {
  const auto board = make_board(4);
  const std::size_t first = board->claim();
  const std::size_t second = board->claim();
  const UsageSlot leaves = board->slot(first);
  const UsageSlot stays = board->slot(second);
  ASSERT_TRUE(leaves.reserve(1, 100));
  ASSERT_TRUE(stays.reserve(1, 100));
  EXPECT_FALSE(stays.others_leave(system_clock().now()));
  const Instant before = system_clock().now();
  leaves.leave();
  EXPECT_FALSE(stays.others_leave(Instant{before.ns - 1}));
  const Instant after = system_clock().now();
  EXPECT_TRUE(stays.others_leave(after));
  EXPECT_FALSE(leaves.others_leave(after));
  // Said again it has begun no later.
  while (system_clock().now().ns == after.ns) {
  }
  leaves.leave();
  EXPECT_TRUE(stays.others_leave(after));
  leaves.gave(1, 100);
  EXPECT_FALSE(stays.others_leave(system_clock().now()));
  leaves.took(1, 100);
  EXPECT_TRUE(stays.others_leave(system_clock().now()));
  board->release(first);
  ASSERT_EQ(board->claim(), first);
  leaves.took(1, 100);
  EXPECT_FALSE(stays.others_leave(system_clock().now()));
  EXPECT_FALSE(UsageSlot().others_leave(system_clock().now()));
}

TEST(UsageBoard, WhoLeavesIsGoneWhenItsMemoryIs) {
  const auto board = make_board(2);
  ASSERT_TRUE(board->set_quota(100, UsageBoard::Shrink::kRefuse));
  const UsageSlot stays = board->slot(board->claim());
  std::atomic<int> left{0};
  std::atomic<int> looks{0};
  std::atomic<int> found{0};
  constexpr int kTurns = 10000;
  std::thread waits([&] {
    for (int turn = 1; turn <= kTurns; ++turn) {
      left.wait(turn - 1);
      looks = turn;
      while (stays.others_leave(system_clock().now())) {
      }
      EXPECT_EQ(stays.quota().used, 0U) << turn;
      found = turn;
      found.notify_one();
    }
  });
  for (int turn = 1; turn <= kTurns; ++turn) {
    const std::size_t slot = board->claim();
    const UsageSlot leaves = board->slot(slot);
    EXPECT_TRUE(leaves.reserve(0, 100));
    leaves.leave();
    left = turn;
    left.notify_one();
    while (looks != turn) {
    }
    board->release(slot);
    found.wait(turn - 1);
  }
  waits.join();
}

TEST(UsageBoard, GivesBackWhatAReleasedPlaceHad) {
  const auto board = make_board(2);
  EXPECT_TRUE(board->set_quota(100, UsageBoard::Shrink::kRefuse));
  const std::size_t first = board->claim();
  EXPECT_TRUE(board->slot(first).reserve(0, 100));
  const UsageSlot other = board->slot(board->claim());
  EXPECT_FALSE(other.reserve(0, 1));
  board->release(first);
  EXPECT_EQ(board->quota().used, 0U);
  EXPECT_TRUE(other.reserve(0, 100));
}

TEST(UsageBoard, ShrinksBelowWhatIsUsedOnlyWhenThatIsWanted) {
  const auto board = make_board(1);
  const UsageSlot mine = board->slot(board->claim());
  EXPECT_TRUE(mine.reserve(0, 50));
  EXPECT_FALSE(board->set_quota(49, UsageBoard::Shrink::kRefuse));
  EXPECT_EQ(board->quota().limit, 0U);
  EXPECT_TRUE(board->set_quota(49, UsageBoard::Shrink::kWhenFree));
  EXPECT_EQ(board->quota().left(), 0U);
  EXPECT_FALSE(mine.reserve(0, 1));
  mine.gave(0, 2);
  EXPECT_TRUE(mine.reserve(0, 1));
  EXPECT_TRUE(board->set_quota(0, UsageBoard::Shrink::kRefuse));
  EXPECT_TRUE(mine.reserve(0, 1000));
}

// Killed at any moment, also while it holds the lock.
TEST(UsageBoard, SurvivesTheDeathOfWhoReserves) {
  const auto board = make_board(8);
  const UsageSlot mine = board->slot(board->claim());
  EXPECT_TRUE(board->set_quota(1000, UsageBoard::Shrink::kRefuse));
  for (int round = 0; round < 60; ++round) {
    const std::size_t slot = board->claim();
    const pid_t child = ::fork();
    if (child == 0) {
      const UsageSlot theirs = board->slot(slot);
      while (true) {
        if (theirs.reserve(0, 7)) theirs.gave(0, 7);
      }
    }
    for (int i = 0; i < 200 * (round % 5); ++i) {
      if (mine.reserve(0, 994)) mine.gave(0, 994);
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    board->release(slot);
    EXPECT_EQ(board->quota().used, 0U);
    EXPECT_TRUE(mine.reserve(0, 1000));
    mine.gave(0, 1000);
  }
}

TEST(UsageBoard, NeverExceedsTheQuotaWhateverComesAtOnce) {
  constexpr int kProcesses = 4;
  const auto board = make_board(kProcesses);
  EXPECT_TRUE(board->set_quota(10, UsageBoard::Shrink::kRefuse));
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const UsageSlot slot = board->slot(board->claim());
    children.push_back(::fork());
    if (children.back() != 0) continue;
    bool good = true;
    for (int round = 0; round < 20000; ++round) {
      if (!slot.reserve(0, 4)) continue;
      const MemoryQuota quota = slot.quota();
      good = good && quota.used <= quota.limit && quota.used >= 4;
      slot.gave(0, 4);
    }
    ::_exit(good ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(board->quota().used, 0U);
}

TEST(UsageBoard, ShowsSessionsInTheOrderInWhichTheyCame) {
  const auto board = make_board(2);
  const std::size_t first = board->claim();
  const std::size_t second = board->claim();
  board->slot(second).publish({.process = 2, .machine = "m", .name = "two"});
  board->slot(first).publish({.process = 1, .machine = "m", .name = std::string(100, 'x')});
  board->slot(first).count({.posted = 1, .waited = 2, .launches = 3, .received_bytes = 4});
  auto rows = board->rows();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, std::string(63, 'x'));
  EXPECT_EQ(rows[0].counters.launches, 3U);
  EXPECT_EQ(rows[1].name, "two");
  board->release(first);
  const std::size_t again = board->claim();
  board->slot(again).publish({.process = 3});
  rows = board->rows();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].client_process, 3U);
  EXPECT_GT(rows[1].number, rows[0].number);
  EXPECT_EQ(rows[1].counters.launches, 0U);
}

TEST(UsageBoard, CountsWhatEndedSessionsHaveDone) {
  const auto board = make_board(2);
  const std::size_t first = board->claim();
  board->slot(first).count({.launches = 3, .busy_ns = 10, .queued_ns = 1});
  board->release(first);
  const std::size_t again = board->claim();
  EXPECT_EQ(board->total().counters.launches, 3U);
  board->slot(again).count({.launches = 2, .busy_ns = 5});
  board->slot(board->claim()).count({.posted = 9, .busy_ns = 100, .queued_ns = 50});
  const UsageBoard::Total total = board->total();
  EXPECT_EQ(total.counters.launches, 5U);
  EXPECT_EQ(total.counters.posted, 9U);
  EXPECT_EQ(total.counters.busy_ns, 115U);
  EXPECT_EQ(total.counters.queued_ns, 51U);
  EXPECT_GT(total.since.count(), 0);
  EXPECT_GE(board->total().since, total.since);
}

TEST(UsageBoard, HandsRequestsToTheParentOnce) {
  const auto board = make_board(2);
  const std::size_t slot = board->claim();
  board->slot(slot).publish({.process = 1});
  const std::uint64_t number = board->rows().front().number;
  EXPECT_FALSE(board->request_end(number + 1));
  EXPECT_FALSE(board->takes_end_request(slot));
  EXPECT_TRUE(board->request_end(number));
  EXPECT_TRUE(board->takes_end_request(slot));
  EXPECT_FALSE(board->takes_end_request(slot));
  EXPECT_FALSE(board->takes_end_request(UsageBoard::kNoSlot));
  std::uint32_t seconds = 0;
  EXPECT_FALSE(board->takes_drain_request(seconds));
  board->request_drain(5);
  EXPECT_TRUE(board->draining());
  EXPECT_TRUE(board->takes_drain_request(seconds));
  EXPECT_EQ(seconds, 5U);
  EXPECT_FALSE(board->takes_drain_request(seconds));
}

TEST(UsageBoard, CountsSessionsThatGoOn) {
  const auto board = make_board(2);
  const std::size_t slot = board->claim();
  board->slot(slot).note_return();
  board->slot(slot).note_return();
  UsageSlot().note_return();
  board->release(slot);
  EXPECT_EQ(2U, board->total().returns);
}

TEST(UsageBoard, KeepsTheNewestFaults) {
  const auto board = make_board(2);
  const UsageSlot session = board->slot(board->claim());
  session.publish({.process = 4711, .name = "trainer"});
  EXPECT_TRUE(board->faults(0).empty());
  const std::uint64_t told = UsageBoard::kFaultsKept + 3;
  for (std::uint64_t i = 0; i < told; ++i) {
    session.note_suspect({.error = 700, .suspects = i == 0 ? 1U : 2U, .goes_on = true});
  }
  session.note_innocent(true);
  session.note_innocent(false);
  const FaultCounts counts = board->fault_counts();
  EXPECT_EQ(1U, counts.caused);
  EXPECT_EQ(told - 1, counts.suspected);
  EXPECT_EQ(1U, counts.survived);
  EXPECT_EQ(1U, counts.lost);
  const std::vector<Fault> kept = board->faults(0);
  ASSERT_EQ(UsageBoard::kFaultsKept, kept.size());
  EXPECT_EQ(4U, kept.front().number);
  EXPECT_EQ(told, kept.back().number);
  EXPECT_EQ("trainer", kept.back().name);
  EXPECT_EQ(4711U, kept.back().client_process);
  EXPECT_EQ(1U, board->faults(told - 1).size());
  EXPECT_TRUE(board->faults(told).empty());
  EXPECT_TRUE(board->faults(~std::uint64_t{0}).empty());
}

}  // namespace
}  // namespace flyt::server
