#include "softgpu/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "softgpu/driver.h"

namespace flyt::softgpu {
namespace {

class SettingsTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : kNames) ::unsetenv(name);
  }
  static constexpr const char* kNames[] = {"FLYT_SOFTGPU_DEVICES",
                                           "FLYT_SOFTGPU_SMS",
                                           "FLYT_SOFTGPU_MEMORY",
                                           "FLYT_SOFTGPU_COMPUTE_CAPABILITY",
                                           "FLYT_SOFTGPU_KERNEL_TIMEOUT_MS",
                                           "FLYT_SOFTGPU_HOST_MEMORY_WAITS",
                                           "FLYT_SOFTGPU_MEMORY_MOVES",
                                           "FLYT_SOFTGPU_SHARED_CONTEXTS",
                                           "FLYT_SOFTGPU_STREAMS_RETURN",
                                           "FLYT_SOFTGPU_VARIABLES_MOVE",
                                           "CUDA_VISIBLE_DEVICES"};
};

TEST_F(SettingsTest, HaveDefaults) {
  const Settings settings = Settings::from_environment();
  EXPECT_EQ(settings.devices, 1u);
  EXPECT_EQ(settings.multiprocessors, 16u);
  EXPECT_EQ(settings.memory_bytes, 2 * kGiB);
  EXPECT_EQ(settings.capability.number(), 90u);
  EXPECT_GE(settings.threads, 1u);
  EXPECT_FALSE(settings.host_memory_waits);
  EXPECT_FALSE(settings.memory_moves);
  EXPECT_FALSE(settings.streams_return);
  EXPECT_EQ(settings.shared_contexts, 0u);
  EXPECT_FALSE(settings.variables_move);
  EXPECT_EQ(settings.variable_places, 0u);
}

TEST_F(SettingsTest, ComeFromTheEnvironment) {
  ::setenv("FLYT_SOFTGPU_DEVICES", "3", 1);
  ::setenv("FLYT_SOFTGPU_SMS", "132", 1);
  ::setenv("FLYT_SOFTGPU_MEMORY", "512M", 1);
  ::setenv("FLYT_SOFTGPU_COMPUTE_CAPABILITY", "8.6", 1);
  ::setenv("FLYT_SOFTGPU_KERNEL_TIMEOUT_MS", "250", 1);
  ::setenv("FLYT_SOFTGPU_HOST_MEMORY_WAITS", "1", 1);
  ::setenv("FLYT_SOFTGPU_MEMORY_MOVES", "1", 1);
  ::setenv("FLYT_SOFTGPU_SHARED_CONTEXTS", "48", 1);
  ::setenv("FLYT_SOFTGPU_STREAMS_RETURN", "1", 1);
  ::setenv("FLYT_SOFTGPU_VARIABLES_MOVE", "1", 1);
  const Settings settings = Settings::from_environment();
  EXPECT_EQ(settings.devices, 3u);
  EXPECT_EQ(settings.multiprocessors, 132u);
  EXPECT_EQ(settings.memory_bytes, 512 * kMiB);
  EXPECT_EQ(settings.capability.number(), 86u);
  EXPECT_EQ(settings.kernel_timeout_ns, 250'000'000u);
  EXPECT_TRUE(settings.host_memory_waits);
  EXPECT_TRUE(settings.memory_moves);
  EXPECT_TRUE(settings.streams_return);
  EXPECT_EQ(settings.shared_contexts, 48u);
  EXPECT_TRUE(settings.variables_move);
  EXPECT_EQ(settings.variable_places, 0u);
}

TEST_F(SettingsTest, HaveVariablesInChunks) {
  ::setenv("FLYT_SOFTGPU_VARIABLES_MOVE", "32", 1);
  EXPECT_EQ(Settings::from_environment().variable_places, 32u);
  EXPECT_FALSE(Settings::from_environment().variables_move);
  ::setenv("FLYT_SOFTGPU_VARIABLES_MOVE", "4097", 1);
  EXPECT_EQ(Settings::from_environment().variable_places, 0u);
}

TEST_F(SettingsTest, KeepTheirDefaultsForNonsense) {
  ::setenv("FLYT_SOFTGPU_DEVICES", "many", 1);
  ::setenv("FLYT_SOFTGPU_SMS", "0", 1);
  ::setenv("FLYT_SOFTGPU_MEMORY", "99999999999G", 1);
  ::setenv("FLYT_SOFTGPU_COMPUTE_CAPABILITY", "9", 1);
  const Settings settings = Settings::from_environment();
  EXPECT_EQ(settings.devices, 1u);
  EXPECT_EQ(settings.multiprocessors, 16u);
  EXPECT_EQ(settings.memory_bytes, 2 * kGiB);
  EXPECT_EQ(settings.capability.number(), 90u);
}

TEST_F(SettingsTest, ShowTheDevicesThatAreToBeVisible) {
  const auto units = [](const char* visible) {
    ::setenv("FLYT_SOFTGPU_DEVICES", "4", 1);
    if (visible != nullptr) ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    return visible_units(Settings::from_environment());
  };
  using Units = std::vector<unsigned>;
  EXPECT_EQ(units(nullptr), (Units{0, 1, 2, 3}));
  EXPECT_EQ(units("2"), (Units{2}));
  EXPECT_EQ(units("3,1"), (Units{3, 1}));
  EXPECT_EQ(units(""), Units{});
  EXPECT_EQ(units("1,7,2"), (Units{1}));
  EXPECT_EQ(units("1,1"), (Units{1}));
  EXPECT_EQ(units("-1"), Units{});
  EXPECT_EQ(units("GPU-"), Units{});
  // All but the last byte is the same, so that short names mean the first one.
  EXPECT_EQ(units("GPU-f11750f7-6b"), (Units{0}));
}

}  // namespace
}  // namespace flyt::softgpu
