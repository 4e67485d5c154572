#include "base/system_memory.h"

#include <gtest/gtest.h>

namespace flyt {
namespace {

TEST(SystemMemory, IsReadFromTheSystemsWords) {
  const auto memory =
      parse_system_memory("MemTotal:       24034564 kB\nMemFree:  7 kB\nMemAvailable:   1000 kB\n");
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->total, std::uint64_t{24034564} * 1024);
  EXPECT_EQ(memory->available, 1000U * 1024);
}

TEST(SystemMemory, IsNotKnownWhereTheSystemSaysSomethingElse) {
  EXPECT_FALSE(parse_system_memory(""));
  EXPECT_FALSE(parse_system_memory("MemTotal: 5 kB\n"));
  EXPECT_FALSE(parse_system_memory("MemTotal: 5 kB\nNoMemAvailable: 5 kB\n"));
  EXPECT_FALSE(parse_system_memory("MemTotal: many kB\nMemAvailable: 5 kB\n"));
  EXPECT_FALSE(parse_system_memory("MemTotal: 5 kB\nMemAvailable: 99999999999999999999 kB\n"));
}

TEST(SystemMemory, OfThisMachineIsKnown) {
  const auto memory = system_memory();
  ASSERT_TRUE(memory);
  EXPECT_GT(memory->available, 0U);
  EXPECT_LE(memory->available, memory->total);
}

}  // namespace
}  // namespace flyt
