#include "control/node/gpu_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "control/node/inventory.h"

namespace flyt::node {
namespace {

// Until then only a failure waits.
constexpr Duration kPatience = std::chrono::seconds(60);

class GpuWatchTest : public testing::Test {
 protected:
  GpuWatchTest() {
    std::filesystem::create_directories(folder_);
    ::setenv("FLYT_SOFTGPU_LOST", folder_.c_str(), 1);
    config_.soft = 2;
  }
  ~GpuWatchTest() override {
    ::unsetenv("FLYT_SOFTGPU_LOST");
    std::filesystem::remove_all(folder_);
  }
  void lose(int gpu) { std::ofstream(folder_ + "/lost-" + std::to_string(gpu)) << ""; }

  const std::string folder_ = testing::TempDir() + "flyt-gpu-watch-" + std::to_string(::getpid());
  Config config_;
};

TEST_F(GpuWatchTest, TellsOfAGpuThatFailsAndNeverForgetsIt) {
  Mutex mutex;
  Condition changed;
  bool told = false;
  GpuWatch watch(config_, failed_gpus(config_), [&] {
    const Lock lock(mutex);
    told = true;
    changed.notify_all();
  });
  EXPECT_TRUE(watch.failures().empty());
  lose(1);
  {
    std::unique_lock<Mutex> lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, kPatience, [&] { return told; }));
  }
  ASSERT_EQ(watch.failures().size(), 1U);
  EXPECT_TRUE(watch.failures().contains(1));
  std::filesystem::remove(folder_ + "/lost-1");
  EXPECT_TRUE(failed_gpus(config_).empty());
  EXPECT_TRUE(watch.failures().contains(1));
}

TEST_F(GpuWatchTest, LooksAtNoGpuThatThereIsNot) {
  lose(2);
  EXPECT_TRUE(failed_gpus(config_).empty());
  lose(0);
  EXPECT_TRUE(failed_gpus(config_).contains(0));
}

// What a driver says; `states` as in testing/fake_nvml.cc.
class NvmlTest : public testing::Test {
 protected:
  NvmlTest() { config_.nvml = FLYT_FAKE_NVML_FILE; }
  ~NvmlTest() override { ::unsetenv("FLYT_FAKE_NVML"); }
  static void say(const char* states) { ::setenv("FLYT_FAKE_NVML", states, 1); }

  Config config_;
};

TEST_F(NvmlTest, OnlyWhatIsLostOrNeedsAResetHasFailed) {
  say("ooo");
  EXPECT_TRUE(failed_gpus(config_).empty());
  say("olu");
  const GpuFailures lost = failed_gpus(config_);
  EXPECT_EQ(lost, (GpuFailures{{1, "NVML says that it is lost"}}));
  say("roo");
  EXPECT_EQ(failed_gpus(config_), (GpuFailures{{0, "NVML says that it has to be reset"}}));
}

TEST_F(NvmlTest, WhatTheDriverSaysThatItNeedsIsAFailureIfProgramsCannotGoOn) {
  say("RDB");
  EXPECT_EQ(failed_gpus(config_),
            (GpuFailures{{0, "NVML says that it has to be reset"},
                         {2, "NVML says that its machine has to be restarted"}}));
}

TEST_F(NvmlTest, OthersAreFoundBesideALostOne) {
  say("olo");
  const auto found = find_gpus(config_);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, (std::vector<std::string>{"GPU-0", "", "GPU-2"}));
  say("uoo");
  const auto unknown = find_gpus(config_);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("cannot reach GPU 0"), std::string::npos);
}

TEST_F(NvmlTest, AMachineWithoutNvmlHasNoFailures) {
  config_.nvml = "/nowhere/libnvidia-ml.so.1";
  EXPECT_TRUE(failed_gpus(config_).empty());
  EXPECT_FALSE(find_gpus(config_).ok());
}

}  // namespace
}  // namespace flyt::node
