// Whether a session is lost, declared by several threads at once.
#include "rpc/loss.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "rpc/testing/session.h"

namespace flyt::rpc {
namespace {

using namespace testing;

// Its on_lost() lasts until it is released; or some time, as who would release it may wait for it.
class SlowPushes final : public PushHandler {
 public:
  bool on_host_call(std::uint64_t, std::uint64_t, Bytes) override { return true; }
  void on_output(std::uint32_t, Bytes) override {}
  void on_delivered(std::uint64_t, bool) override {}
  void on_completed(std::uint64_t, std::uint64_t) override {}
  void on_lost(const Error&) override {
    losses.fetch_add(1);
    const Instant end = system_clock().now() + std::chrono::milliseconds(100);
    while (!release.load() && system_clock().now() < end) std::this_thread::yield();
  }

  std::atomic<int> losses{0};
  std::atomic<bool> release{false};
};

TEST(Loss, IsLostForWhoeverDeclaresIt) {
  const transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  SlowPushes pushes;
  Loss loss(*pair.first, pushes);
  std::thread first([&] { loss.declare(Error{ErrorCode::kLost, "first"}); });
  while (pushes.losses.load() == 0) std::this_thread::yield();
  loss.declare_end(Error{ErrorCode::kLost, "second"});
  EXPECT_TRUE(loss.lost());
  pushes.release.store(true);
  first.join();
  EXPECT_EQ(loss.error().message, "first");
  EXPECT_FALSE(loss.cut());
  EXPECT_EQ(pushes.losses.load(), 1);
}

TEST(Loss, OfTheParentIsNotTheChilds) {
  const transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  SlowPushes pushes;
  Loss loss(*pair.first, pushes);
  loss.abandon();
  loss.declare(Error{ErrorCode::kLost, "ended"});
  EXPECT_EQ(pushes.losses.load(), 0);
  EXPECT_TRUE(loss.abandoned());
  EXPECT_EQ(pair.second->wait(transport::kHangup, system_clock().now(), nullptr),
            transport::kNothing);
}

}  // namespace
}  // namespace flyt::rpc
