// How a process starts, shares and loses its connection for NVML.
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/kill/child.h"
#include "tests/nvml/library.h"

namespace flyt::tests {
namespace {

constexpr double kSeconds = 60;

class Lifetime : public NvmlTest {};

unsigned int count_of_gpus() {
  unsigned int count = 99;
  EXPECT_EQ(nvml().nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
  return count;
}

TEST_P(Lifetime, NothingWorksBeforeInit) {
  unsigned int count = 0;
  char text[96];
  EXPECT_EQ(nvml().nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvml().nvmlSystemGetDriverVersion(text, sizeof text), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvml().nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  int version = 0;
  EXPECT_EQ(nvml().nvmlSystemGetCudaDriverVersion_v2(&version), NVML_SUCCESS);
  EXPECT_GE(version, 12000);
  EXPECT_EQ(nvml().nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
}

TEST_P(Lifetime, AsManyShutdownsAsInitsEndIt) {
  init();
  ASSERT_EQ(nvml().nvmlInitWithFlags(0), NVML_SUCCESS);
  ASSERT_EQ(nvml().nvmlInit(), NVML_SUCCESS);
  EXPECT_EQ(nvml().nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(nvml().nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(count_of_gpus(), 2U);
  EXPECT_EQ(nvml().nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(nvml().nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  EXPECT_TRUE(eventually(kSeconds, [&] { return server_.children().empty(); }));
  init();
  EXPECT_EQ(count_of_gpus(), 2U);
}

TEST_P(Lifetime, HandlesOutliveAReinitialisation) {
  init();
  const nvmlDevice_t before = device(1);
  ASSERT_EQ(nvml().nvmlShutdown(), NVML_SUCCESS);
  init();
  unsigned int index = 0;
  EXPECT_EQ(nvml().nvmlDeviceGetIndex(before, &index), NVML_SUCCESS);
  EXPECT_EQ(index, 1U);
}

TEST_P(Lifetime, AForkedChildAsksForItself) {
  kill::Child forking("fork", 0, server_.url());
  EXPECT_EQ(forking.wait(kSeconds), 0) << server_.log();
}

TEST_P(Lifetime, ThreadsMayAskWhileOthersComeAndGo) {
  init();
  const nvmlDevice_t gpu = device(1);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 20; ++turn) {
        nvmlMemory_t memory{};
        if (i < 2 && nvml().nvmlInit_v2() != NVML_SUCCESS) ++failures;
        if (nvml().nvmlDeviceGetMemoryInfo(gpu, &memory) != NVML_SUCCESS) ++failures;
        if (i < 2 && nvml().nvmlShutdown() != NVML_SUCCESS) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_EQ(count_of_gpus(), 2U);
}

TEST_P(Lifetime, ALostServerIsALostGpuUntilTheNextInit) {
  init();
  const nvmlDevice_t gpu = device(0);
  server_.kill();
  nvmlMemory_t memory{};
  EXPECT_TRUE(eventually(kSeconds, [&] {
    return nvml().nvmlDeviceGetMemoryInfo(gpu, &memory) == NVML_ERROR_GPU_IS_LOST;
  }));
  char name[96];
  unsigned int value = 0;
  EXPECT_EQ(nvml().nvmlDeviceGetName(gpu, name, sizeof name), NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(nvml().nvmlDeviceGetPowerUsage(gpu, &value), NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(nvml().nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
  ServerProcess another;
  ASSERT_TRUE(another.start({.program = server_program(), .listen = listen_at(GetParam())}).ok());
  ::setenv("FLYT_SERVER", another.url().c_str(), 1);
  init();
  EXPECT_EQ(nvml().nvmlDeviceGetMemoryInfo(gpu, &memory), NVML_SUCCESS);
  while (nvml().nvmlShutdown() == NVML_SUCCESS) {
  }
}

TEST_P(Lifetime, WithoutAServerThereIsNoDriver) {
  ::unsetenv("FLYT_SERVER");
  EXPECT_EQ(nvml().nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
  ::setenv("FLYT_SERVER", "unix:///nowhere/flyt.sock", 1);
  EXPECT_EQ(nvml().nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
  EXPECT_EQ(nvml().nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
}

TEST_P(Lifetime, VersionsAreTold) {
  init();
  char text[96];
  ASSERT_EQ(nvml().nvmlSystemGetDriverVersion(text, sizeof text), NVML_SUCCESS);
  EXPECT_GE(std::atoi(text), 500);
  ASSERT_EQ(nvml().nvmlSystemGetNVMLVersion(text, sizeof text), NVML_SUCCESS);
  EXPECT_NE(std::string(text).find('.'), std::string::npos);
  EXPECT_EQ(nvml().nvmlSystemGetNVMLVersion(text, 2), NVML_ERROR_INSUFFICIENT_SIZE);
  unsigned int count = 7;
  EXPECT_EQ(nvml().nvmlUnitGetCount(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
}

TEST_P(Lifetime, EveryErrorHasAText) {
  using Text = const char* (*)(nvmlReturn_t);
  const auto text = reinterpret_cast<Text>(nvml_export("nvmlErrorString"));
  ASSERT_NE(text, nullptr);
  EXPECT_STREQ(text(NVML_SUCCESS), "Success");
  EXPECT_STREQ(text(NVML_ERROR_GPU_IS_LOST), "GPU is lost");
  for (int i = 0; i <= 30; ++i) EXPECT_NE(text(static_cast<nvmlReturn_t>(i)), nullptr);
  EXPECT_STREQ(text(static_cast<nvmlReturn_t>(12345)), text(NVML_ERROR_UNKNOWN));
}

// Calls every export without a sensible argument: none may crash, and none says more than it may.
TEST_P(Lifetime, EveryExportAnswers) {
  init();
  std::ifstream names(FLYT_NVML_EXPORTS_FILE);
  std::string name;
  int seen = 0;
  using Call = nvmlReturn_t (*)(void*, void*, void*, void*, void*, void*);
  while (std::getline(names, name)) {
    ++seen;
    if (name == "nvmlErrorString" || name.starts_with("nvmlInit") || name == "nvmlShutdown") {
      continue;
    }
    const auto call = reinterpret_cast<Call>(nvml_export(name.c_str()));
    ASSERT_NE(call, nullptr) << name;
    EXPECT_NE(call(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), NVML_SUCCESS) << name;
  }
  EXPECT_GT(seen, 300);
  EXPECT_EQ(count_of_gpus(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Over, Lifetime, testing::Values("unix", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace flyt::tests
