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

TEST(PlainText, KeepsWhatCanBeShownAndNothingElse) {
  EXPECT_EQ(plain_text("node n1: no room", 100), "node n1: no room");
  EXPECT_EQ(plain_text("a\nb\tc\x1b[31m\x7f", 100), "a b c?[31m?");
  EXPECT_EQ(plain_text(std::string("a\0b", 3), 100), "a?b");
  // Of two, three and four bytes, the last character of all among them.
  const std::string good =
      "\xc2\xa0\xc3\xa9\xe2\x82\xac\xed\x9f\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";
  EXPECT_EQ(plain_text(good, 100), good);
  // Too long for what it says, a half of a pair, beyond the end, a lone part, a control character.
  EXPECT_EQ(plain_text("\xc0\xaf", 100), "??");
  EXPECT_EQ(plain_text("\xe0\x80\xaf", 100), "???");
  EXPECT_EQ(plain_text("\xed\xa0\x80", 100), "???");
  EXPECT_EQ(plain_text("\xf4\x90\x80\x80", 100), "????");
  EXPECT_EQ(plain_text("\x80x\xff", 100), "?x?");
  EXPECT_EQ(plain_text("\xc2\x9b", 100), "??");
  EXPECT_EQ(plain_text("\xc3", 100), "?");
  EXPECT_EQ(plain_text("\xe2\x82", 100), "??");
  EXPECT_EQ(plain_text("\xe2\x82x", 100), "??x");
}

TEST(Counted, OneHasNoPlural) {
  EXPECT_EQ(counted(0, "lease"), "0 leases");
  EXPECT_EQ(counted(1, "lease"), "1 lease");
  EXPECT_EQ(counted(2, "lease"), "2 leases");
}

TEST(PlainText, IsNeverCutInACharacter) {
  const std::string text =
      "a\xe2\x82\xac"
      "b";
  EXPECT_EQ(plain_text(text, 0), "");
  EXPECT_EQ(plain_text(text, 1), "a");
  EXPECT_EQ(plain_text(text, 3), "a");
  EXPECT_EQ(plain_text(text, 4), "a\xe2\x82\xac");
  EXPECT_EQ(plain_text(text, 5), text);
}

}  // namespace
}  // namespace flyt
