#include "base/text.h"

#include <gtest/gtest.h>

namespace flyt {
namespace {

TEST(Sizes, AreReadInEveryForm) {
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("512M"), 512ull << 20);
  EXPECT_EQ(*parse_size("1.5g"), 3ull << 29);
  EXPECT_EQ(*parse_size("2TiB"), 2ull << 40);
}

TEST(Sizes, RefuseWhatIsNone) {
  for (const char* bad : {"", "G", "-1", "1.5", "1X", "1GG", "99999999999T", "1 G", "0x10"}) {
    EXPECT_FALSE(parse_size(bad)) << bad;
  }
}

TEST(Sizes, AreWrittenInTheLargestUnit) {
  EXPECT_EQ(size_text(100), "100 bytes");
  EXPECT_EQ(size_text(512ull << 20), "512 MiB");
  EXPECT_EQ(size_text(3ull << 29), "1.5 GiB");
}

TEST(Times, AreReadAndWritten) {
  EXPECT_EQ(*parse_seconds("90"), 90u);
  EXPECT_EQ(*parse_seconds("15m"), 900u);
  EXPECT_EQ(*parse_seconds("7d"), 604800u);
  for (const char* bad : {"", "m", "5x", "5mm", "-5", "99999999999d"}) {
    EXPECT_FALSE(parse_seconds(bad)) << bad;
  }
  EXPECT_EQ(seconds_text(0), "0s");
  EXPECT_EQ(seconds_text(90), "1m 30s");
  EXPECT_EQ(seconds_text(90000), "1d 1h");
}

}  // namespace
}  // namespace flyt
