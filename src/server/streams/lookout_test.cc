#include "server/streams/lookout.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace flyt::server {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

// One thing, which is finished once the test says so.
class Subject final : public Lookout::Subject {
 public:
  std::uint64_t pending() const override {
    const std::lock_guard lock(mutex_);
    return pending_;
  }
  void look(Look) override {
    const std::lock_guard lock(mutex_);
    last_ = std::this_thread::get_id();
    if (finished_) pending_ = 0;
    ++looks_;
    changed_.notify_all();
  }
  void begin(bool finished) {
    const std::lock_guard lock(mutex_);
    pending_ = 1;
    finished_ = finished;
    looks_ = 0;
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  bool wait_until_told() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [this] { return pending_ == 0; });
  }
  // Another thread than the calling one looks.
  bool wait_for_a_worker() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience,
                             [this] { return looks_ > 0 && last_ != std::this_thread::get_id(); });
  }
  std::thread::id last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t pending_ = 0;
  std::uint64_t looks_ = 0;
  bool finished_ = false;
  std::thread::id last_;
};

struct LookoutTest : ::testing::Test {
  LookoutTest() { lookout.add(subject); }
  ~LookoutTest() override {
    over = true;
    workers.stop();
  }

  std::atomic<bool> over{false};
  Subject subject;
  Workers workers;
  Lookout lookout{workers, system_clock(), [this] { return over.load(); }};
};

TEST_F(LookoutTest, TellsWhatIsFinishedWhileTheMainThreadIsAwake) {
  subject.begin(true);
  lookout.expect();
  while (lookout.poll()) {
  }
  EXPECT_TRUE(subject.wait_until_told());
}

TEST_F(LookoutTest, KeepsTheMainThreadAwakeForAWhileAndThenHasAWorkerLook) {
  subject.begin(false);
  lookout.expect();
  while (lookout.poll()) {
  }
  EXPECT_TRUE(subject.wait_for_a_worker());
  subject.finish();
  EXPECT_TRUE(subject.wait_until_told());
}

TEST_F(LookoutTest, TellsWhileTheMainThreadIsHeldUpElsewhere) {
  subject.begin(true);
  lookout.expect();
  EXPECT_TRUE(subject.wait_until_told());
  EXPECT_NE(subject.last(), std::this_thread::get_id());
}

TEST_F(LookoutTest, GoesOnAfterItHadNothingToDo) {
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    // Some rounds are left to the main thread, some to a worker, some to the guard.
    subject.begin(round % 3 != 1);
    lookout.expect();
    while (round % 3 != 2 && lookout.poll()) {
    }
    subject.finish();
    ASSERT_TRUE(subject.wait_until_told());
  }
}

}  // namespace
}  // namespace flyt::server
