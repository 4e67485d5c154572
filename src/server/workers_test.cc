#include "server/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <vector>

namespace flyt::server {
namespace {

TEST(Workers, RunAllThatIsGiven) {
  std::atomic<int> done{0};
  std::latch all(100);
  Workers workers;
  for (int i = 0; i < 100; ++i) {
    workers.run([&] {
      done.fetch_add(1);
      all.count_down();
    });
  }
  all.wait();
  EXPECT_EQ(done.load(), 100);
}

// Work that waits for other work would stop here if it kept the other from running.
TEST(Workers, LetBlockedWorkWaitForOthers) {
  std::latch release(1);
  std::latch finished(10);
  Workers workers;
  for (int i = 0; i < 9; ++i) {
    workers.run([&] {
      release.wait();
      finished.count_down();
    });
  }
  workers.run([&] {
    release.count_down();
    finished.count_down();
  });
  finished.wait();
}

TEST(Workers, OfOneThreadKeepTheOrder) {
  std::vector<int> order;
  std::latch all(50);
  Workers workers(1);
  for (int i = 0; i < 50; ++i) {
    workers.run([&, i] {
      order.push_back(i);
      all.count_down();
    });
  }
  all.wait();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Workers, TakeNothingMoreOnceStopped) {
  Workers workers;
  workers.stop();
  workers.run([] { FAIL() << "ran after stop()"; });
  workers.stop();
}

TEST(Workers, DoIdleWorkOnlyAfterOther) {
  std::atomic<int> idle{0};
  std::latch done(1);
  Workers workers(1);
  workers.when_idle(
      [&] {
        if (idle.fetch_add(1) + 1 < 3) return true;
        done.count_down();
        return false;
      },
      std::chrono::microseconds(100));
  EXPECT_EQ(idle.load(), 0);
  workers.run([] {});
  done.wait();
  workers.stop();
  EXPECT_EQ(idle.load(), 3);
}

// Idle work that never ends would keep other work from running if it came first.
TEST(Workers, DoOtherWorkBetweenPiecesOfIdleWork) {
  std::atomic<bool> more{true};
  std::latch begun(1);
  std::latch finished(20);
  Workers workers(1);
  workers.when_idle(
      [&, first = true]() mutable {
        if (first) begun.count_down();
        first = false;
        return more.load();
      },
      std::chrono::microseconds(0));
  workers.run([] {});
  begun.wait();
  for (int i = 0; i < 20; ++i) workers.run([&] { finished.count_down(); });
  finished.wait();
  more = false;
}

}  // namespace
}  // namespace flyt::server
