// Occupancy: how many blocks fit, and the block size that fills a device.
#include <memory>
#include <string>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class OccupancyTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    module = std::make_unique<Module>(kBasicPtx);
    function = module->function("empty");
  }
  std::unique_ptr<Module> module;
  CUfunction function = nullptr;
};

TEST_F(OccupancyTest, BlocksAreLimitedByThreads) {
  const int per_processor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  int blocks = 0;
  CU_OK(cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1024, 0));
  EXPECT_EQ(per_processor / 1024, blocks);
  CU_OK(cu().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, 512, 0, 0));
  EXPECT_EQ(per_processor / 512, blocks);
}

TEST_F(OccupancyTest, BlocksAreLimitedBySharedMemory) {
  const int shared = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  int blocks = 0;
  CU_OK(cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 40 * 1024));
  EXPECT_LE(blocks, shared / (40 * 1024));
  EXPECT_GE(blocks, 1);
}

TEST_F(OccupancyTest, ABlockThatDoesNotFitGivesZero) {
  int blocks = -1;
  CU_OK(cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 2048, 0));
  EXPECT_EQ(0, blocks);
  blocks = -1;
  CU_OK(cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 1 << 20));
  EXPECT_EQ(0, blocks);
}

// A kernel whose sums all live until its end, so that it would take as many registers as it gets.
std::string greedy_kernel(const std::string& name, const std::string& directives) {
  constexpr int kSums = 500;
  std::string text = ".visible .entry " + name + "(.param .u64 p) " + directives + " {\n" +
                     ".reg .u32 %r<" + std::to_string(kSums) + ">; .reg .u64 %a;\n" +
                     "ld.param.u64 %a, [p];\n";
  for (int i = 0; i < kSums; ++i) {
    text +=
        "ld.volatile.global.u32 %r" + std::to_string(i) + ", [%a+" + std::to_string(i * 4) + "];\n";
  }
  for (int i = 0; i < kSums; ++i) {
    text += "st.volatile.global.u32 [%a+" + std::to_string(i * 4) + "], %r" +
            std::to_string(kSums - 1 - i) + ";\n";
  }
  return text + "ret; }\n";
}

TEST_F(OccupancyTest, AKernelFitsWithAsManyThreadsAndBlocksAsItIsMadeFor) {
  const std::string head = ".version 7.0\n.target sm_52\n.address_size 64\n";
  struct Case {
    int threads;
    int blocks;
  };
  for (const Case& one : {Case{960, 1}, Case{768, 1}, Case{700, 1}, Case{608, 1}, Case{256, 4},
                          Case{192, 5}, Case{128, 9}}) {
    const std::string directives = ".maxntid " + std::to_string(one.threads) +
                                   ", 1, 1 .minnctapersm " + std::to_string(one.blocks);
    const Module greedy(head + greedy_kernel("greedy", directives));
    int blocks = 0;
    CU_OK(cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, greedy.function("greedy"),
                                                           one.threads, 0));
    EXPECT_GE(blocks, one.blocks) << one.threads;
  }
}

TEST_F(OccupancyTest, ArgumentsAreChecked) {
  int blocks = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, function, 32, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, -5, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, 32, 0, 0x80));
  CU_IS(CUDA_ERROR_INVALID_HANDLE,
        cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 32, 0));
}

TEST_F(OccupancyTest, ThePotentialBlockSizeIsUsable) {
  int grid = 0;
  int block = 0;
  CU_OK(cu().cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 0));
  EXPECT_GE(grid, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  EXPECT_GE(block, 32);
  EXPECT_LE(block, 1024);
  CU_OK(cu().cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 64));
  EXPECT_LE(block, 64);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuOccupancyMaxPotentialBlockSize(nullptr, &block, function, nullptr, 0, 0));
}

std::size_t four_bytes_a_thread(int threads) { return static_cast<std::size_t>(threads) * 4; }

TEST_F(OccupancyTest, ASharedMemoryCallbackIsAsked) {
  int grid = 0;
  int block = 0;
  CU_OK(cu().cuOccupancyMaxPotentialBlockSizeWithFlags(
      &grid, &block, module->function("shared_sum"), four_bytes_a_thread, 0, 0, 0));
  EXPECT_GE(block, 32);
}

TEST_F(OccupancyTest, AvailableDynamicSharedMemoryShrinksWithBlocks) {
  std::size_t one = 0;
  std::size_t four = 0;
  CU_OK(cu().cuOccupancyAvailableDynamicSMemPerBlock(&one, function, 1, 128));
  CU_OK(cu().cuOccupancyAvailableDynamicSMemPerBlock(&four, function, 4, 128));
  EXPECT_GT(one, 0u);
  EXPECT_LE(four, one);
}

class ClusterOccupancyTest : public OccupancyTest {
 protected:
  void SetUp() override {
    OccupancyTest::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0) GTEST_SKIP() << "no clusters";
    config.gridDimX = 16;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    size.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    size.value.clusterDim.y = size.value.clusterDim.z = 1;
  }
  void expect(CUresult result, bool any) {
    int active = -1;
    int potential = -1;
    CU_IS(result, cu().cuOccupancyMaxActiveClusters(&active, function, &config));
    CU_IS(result, cu().cuOccupancyMaxPotentialClusterSize(&potential, function, &config));
    if (result == CUDA_SUCCESS) {
      EXPECT_EQ(any, active > 0) << active;
    }
  }
  void expect_of(unsigned blocks, CUresult result) {
    size.value.clusterDim.x = blocks;
    config.attrs = &size;
    config.numAttrs = 1;
    expect(result, true);
  }
  CUlaunchAttribute size{};
  CUlaunchConfig config{};
};

TEST_F(ClusterOccupancyTest, OfAConfigurationIsAskedAsOfALaunch) {
  expect(CUDA_SUCCESS, false);
  for (const unsigned blocks : {1U, 2U, 4U, 8U}) expect_of(blocks, CUDA_SUCCESS);
  for (const unsigned blocks : {0U, 3U, 16U, 32U})
    expect_of(blocks, CUDA_ERROR_INVALID_CLUSTER_SIZE);
  config.attrs = nullptr;
  expect(CUDA_ERROR_INVALID_VALUE, true);
}

TEST_F(ClusterOccupancyTest, OfAKernelIsThatOfItsOwnClusters) {
  const Module clusters(kClusterPtx);
  function = clusters.function("pairs");
  expect(CUDA_SUCCESS, true);
  expect_of(2, CUDA_SUCCESS);
  expect_of(4, CUDA_ERROR_INVALID_CLUSTER_SIZE);
  config.numAttrs = 0;
  config.gridDimX = 1;
  expect(CUDA_ERROR_INVALID_CLUSTER_SIZE, true);
}

TEST_F(ClusterOccupancyTest, OfBlocksThatFitNowhereIsNone) {
  config.blockDimX = 2048;
  expect(CUDA_SUCCESS, false);
  int potential = -1;
  CU_OK(cu().cuOccupancyMaxPotentialClusterSize(&potential, function, &config));
  EXPECT_EQ(0, potential);
}

}  // namespace
}  // namespace flyt::conformance
