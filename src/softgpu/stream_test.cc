#include "softgpu/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace flyt::softgpu {
namespace {

class StreamTest : public testing::Test {
 protected:
  std::shared_ptr<Stream> stream() {
    return std::make_shared<Stream>(workers(), fate_, 1, CU_STREAM_DEFAULT, 0, 1);
  }
  // Threads of it may outlive a test.
  static Workers& workers() {
    static Workers& made = *std::make_unique<Workers>().release();
    return made;
  }
  std::shared_ptr<Fate> fate_ = std::make_shared<Fate>();
};

TEST_F(StreamTest, RunsOperationsInTheirOrder) {
  const auto one = stream();
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) one->push({[&order, i](CUresult) { order.push_back(i); }, {}});
  one->last().wait();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(one->idle());
}

TEST_F(StreamTest, WhoeverAddsToAFullStreamWaits) {
  const auto one = stream();
  std::atomic<bool> open{false};
  std::atomic<bool> room{false};
  one->push({[&open](CUresult) { open.wait(false); }, {}});
  for (std::size_t i = 0; i <= Stream::kWaitingMax; ++i) one->push({[](CUresult) {}, {}});
  std::thread adder([&] {
    one->await_room();
    room = true;
    one->push({[](CUresult) {}, {}});
  });
  EXPECT_FALSE(room);
  open = true;
  open.notify_all();
  adder.join();
  one->last().wait();
  EXPECT_TRUE(one->idle());
}

TEST_F(StreamTest, WaitsForTicketsOfOtherStreams) {
  const auto first = stream();
  const auto second = stream();
  std::atomic<bool> open{false};
  std::atomic<bool> seen{false};
  const Ticket gate = first->push({[&open](CUresult) { open.wait(false); }, {}});
  const Ticket after = second->push({[&](CUresult) { seen = open.load(); }, {gate}});
  EXPECT_FALSE(after.reached());
  open = true;
  open.notify_all();
  after.wait();
  EXPECT_TRUE(seen);
}

TEST_F(StreamTest, SkipsOperationsAfterAnErrorButTellsThoseThatAlwaysRun) {
  const auto one = stream();
  bool ran = false;
  CUresult told = CUDA_SUCCESS;
  one->push({[this](CUresult) { fate_->fail(CUDA_ERROR_ILLEGAL_ADDRESS); }, {}});
  one->push({[&ran](CUresult) { ran = true; }, {}});
  one->push({[&told](CUresult status) { told = status; }, {}, true});
  one->last().wait();
  EXPECT_FALSE(ran);
  EXPECT_EQ(told, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(StreamTest, TheFirstErrorStays) {
  fate_->fail(CUDA_ERROR_ASSERT);
  fate_->fail(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(fate_->error(), CUDA_ERROR_ASSERT);
}

TEST_F(StreamTest, FinishesItsWorkWhenNobodyHoldsItAnyMore) {
  std::atomic<int> count{0};
  Ticket last;
  {
    const auto one = stream();
    for (int i = 0; i < 100; ++i) last = one->push({[&count](CUresult) { ++count; }, {}});
  }
  last.wait();
  EXPECT_EQ(count, 100);
}

TEST_F(StreamTest, ManyBlockedStreamsDoNotHoldUpAnother) {
  std::atomic<bool> open{false};
  std::vector<std::shared_ptr<Stream>> blocked;
  for (int i = 0; i < 40; ++i) {
    blocked.push_back(stream());
    blocked.back()->push({[&open](CUresult) { open.wait(false); }, {}});
  }
  const auto free = stream();
  free->push({[](CUresult) {}, {}}).wait();
  open = true;
  open.notify_all();
  for (const auto& each : blocked) each->last().wait();
}

}  // namespace
}  // namespace flyt::softgpu
