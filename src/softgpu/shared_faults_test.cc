#include "softgpu/shared_faults.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "softgpu/stream.h"

namespace flyt::softgpu {
namespace {

// Each open stands for a process: locks are of opens.
class SharedFaultsTest : public ::testing::Test {
 protected:
  SharedFaultsTest() {
    std::string pattern = ::testing::TempDir() + "flyt-faults-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SharedFaultsTest() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<SharedFaults> process(unsigned unit = 0, std::size_t contexts = 0) const {
    auto made = SharedFaults::open(folder_, unit, contexts);
    EXPECT_NE(nullptr, made);
    return made;
  }
  std::string folder_;
  SharedFaults::Place place_;
};

TEST_F(SharedFaultsTest, AFaultIsEveryProcessesThatHasAContext) {
  const auto one = process();
  const auto two = process();
  const auto none = process();
  const auto elsewhere = process(1);
  ASSERT_EQ(CUDA_SUCCESS, one->enter(place_));
  ASSERT_EQ(CUDA_SUCCESS, two->enter(place_));
  ASSERT_EQ(CUDA_SUCCESS, elsewhere->enter(place_));
  Fate own(one.get());
  const Fate others(two.get());
  EXPECT_EQ(CUDA_SUCCESS, others.error());
  own.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, own.error());
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, others.error());
  EXPECT_EQ(CUDA_SUCCESS, none->fault());
  EXPECT_EQ(CUDA_SUCCESS, elsewhere->fault());
}

TEST_F(SharedFaultsTest, NobodyComesBeforeAllWhoWereThereHaveEnded) {
  auto one = process();
  auto two = process();
  ASSERT_EQ(CUDA_SUCCESS, one->enter(place_));
  ASSERT_EQ(CUDA_SUCCESS, two->enter(place_));
  one->tell(CUDA_ERROR_ASSERT);
  const auto next = process();
  EXPECT_EQ(CUDA_ERROR_MPS_SERVER_NOT_READY, next->enter(place_));
  EXPECT_EQ(CUDA_ERROR_MPS_SERVER_NOT_READY, one->enter(place_));
  one.reset();
  EXPECT_EQ(CUDA_ERROR_MPS_SERVER_NOT_READY, next->enter(place_));
  two.reset();
  EXPECT_EQ(CUDA_SUCCESS, next->enter(place_));
  EXPECT_EQ(CUDA_SUCCESS, next->fault());
}

TEST_F(SharedFaultsTest, TheGpuTakesSoManyContextsOfAllProcessesTogether) {
  auto one = process(0, 3);
  const auto two = process(0, 3);
  SharedFaults::Place first;
  SharedFaults::Place second;
  SharedFaults::Place third;
  SharedFaults::Place fourth;
  ASSERT_EQ(CUDA_SUCCESS, one->enter(first));
  ASSERT_EQ(CUDA_SUCCESS, one->enter(second));
  ASSERT_EQ(CUDA_SUCCESS, two->enter(third));
  EXPECT_EQ(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, two->enter(fourth));
  EXPECT_EQ(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, one->enter(fourth));
  // A context that is destroyed makes room, and a process that ends.
  second = {};
  EXPECT_EQ(CUDA_SUCCESS, two->enter(fourth));
  EXPECT_EQ(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, two->enter(second));
  first = {};
  one.reset();
  EXPECT_EQ(CUDA_SUCCESS, two->enter(second));
}

TEST_F(SharedFaultsTest, TheFirstFaultIsTold) {
  const auto one = process();
  ASSERT_EQ(CUDA_SUCCESS, one->enter(place_));
  one->tell(CUDA_ERROR_MISALIGNED_ADDRESS);
  one->tell(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(CUDA_ERROR_MISALIGNED_ADDRESS, one->fault());
}

TEST_F(SharedFaultsTest, WithoutAFolderFaultsAreNotShared) {
  EXPECT_EQ(nullptr, SharedFaults::open(folder_ + "/none", 0));
}

}  // namespace
}  // namespace flyt::softgpu
