#include "server/faults/fault_board.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

namespace flyt::server {
namespace {

constexpr Duration kLong = std::chrono::seconds(60);
constexpr auto kNothing = [] {};

Instant in(Duration time) { return system_clock().now() + time; }

// Each open stands for a process: locks are of opens.
class FaultBoardTest : public ::testing::Test {
 protected:
  FaultBoardTest() {
    std::string pattern = ::testing::TempDir() + "flyt-board-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FaultBoardTest() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<FaultBoard> process() const {
    auto board = FaultBoard::open(folder_ + "/board");
    EXPECT_TRUE(board.ok());
    return std::move(*board);
  }
  std::unique_ptr<FaultBoard> seated() const {
    auto board = process();
    EXPECT_TRUE(board->sit(in(kLong), kNothing));
    return board;
  }
  std::string folder_;
};

TEST_F(FaultBoardTest, AFaultIsToldOnceAndToAllWhoSit) {
  const auto one = seated();
  const auto two = seated();
  const auto outside = process();
  EXPECT_FALSE(one->told());
  one->tell();
  two->tell();
  EXPECT_EQ(1U, outside->incident());
  EXPECT_TRUE(one->told());
  EXPECT_TRUE(two->told());
  EXPECT_FALSE(outside->told());
  two->wait(kLong);  // Comes back at once.
}

TEST_F(FaultBoardTest, SuspectsAreCountedAlsoThoseThatHaveEnded) {
  const auto one = seated();
  auto two = seated();
  const auto three = seated();
  one->tell();
  one->give(FaultPart::kSuspect);
  two->give(FaultPart::kSuspect);
  two.reset();
  three->give(FaultPart::kInnocent);
  EXPECT_EQ(2U, one->suspects(in(kLong)));
}

TEST_F(FaultBoardTest, WhoSaysNothingIsWaitedForUntilTheDeadline) {
  const auto one = seated();
  auto silent = seated();
  one->tell();
  one->give(FaultPart::kSuspect);
  EXPECT_EQ(1U, one->suspects(in(std::chrono::milliseconds(20))));
  std::thread end([&] { silent.reset(); });
  EXPECT_EQ(1U, one->suspects(in(kLong)));
  end.join();
}

TEST_F(FaultBoardTest, WhoComesWaitsUntilAllWhoWereThereHaveEndedOrStay) {
  auto one = seated();
  const auto stays = seated();
  one->tell();
  const auto next = process();
  int waits = 0;
  EXPECT_FALSE(next->sit(in(std::chrono::milliseconds(20)), [&] { ++waits; }));
  EXPECT_EQ(1, waits);
  const auto other = process();
  std::thread end([&] {
    stays->stay();
    one.reset();
  });
  EXPECT_TRUE(other->sit(in(kLong), kNothing));
  end.join();
  EXPECT_FALSE(stays->told());
  EXPECT_FALSE(other->told());
}

TEST_F(FaultBoardTest, VerdictsOfAnEarlierFaultDoNotCount) {
  auto one = seated();
  one->tell();
  one->give(FaultPart::kSuspect);
  one.reset();
  const auto two = seated();
  two->tell();
  two->give(FaultPart::kInnocent);
  EXPECT_EQ(0U, two->suspects(in(kLong)));
}

TEST_F(FaultBoardTest, KnowsFaultsFromOtherErrors) {
  for (const CUresult fault : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
                               CUDA_ERROR_ASSERT, CUDA_ERROR_MPS_CLIENT_TERMINATED}) {
    EXPECT_TRUE(is_gpu_fault(fault)) << fault;
  }
  for (const CUresult other : {CUDA_SUCCESS, CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY,
                               CUDA_ERROR_MPS_SERVER_NOT_READY, CUDA_ERROR_INVALID_VALUE}) {
    EXPECT_FALSE(is_gpu_fault(other)) << other;
  }
}

}  // namespace
}  // namespace flyt::server
