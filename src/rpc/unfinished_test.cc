#include "rpc/unfinished.h"

#include <gtest/gtest.h>

#include <string>

namespace flyt::rpc {
namespace {

void add(Unfinished& unfinished, std::uint64_t sequence, const std::string& fields,
         const std::string& data = {}) {
  const Bytes piece = bytes_of(data);
  unfinished.add({.op = 20, .sequence = sequence, .context = 3, .thread = 4}, bytes_of(fields),
                 std::span<const Bytes>(&piece, 1));
}

TEST(Unfinished, GivesBackWhatIsBehindANumber) {
  Unfinished unfinished;
  add(unfinished, 1, "one");
  add(unfinished, 2, "two");
  add(unfinished, 3, "three, ", "of two pieces");
  const auto all = unfinished.behind(0);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->size(), 3U);
  const auto last = unfinished.behind(2);
  ASSERT_TRUE(last.has_value());
  ASSERT_EQ(last->size(), 1U);
  EXPECT_EQ(last->front().header.sequence, 3U);
  EXPECT_EQ(last->front().header.context, 3U);
  EXPECT_EQ(last->front().header.thread, 4U);
  EXPECT_EQ(text_of(last->front().payload), "three, of two pieces");
  EXPECT_TRUE(unfinished.behind(3)->empty());
}

TEST(Unfinished, SaysWhenSomethingIsGone) {
  Unfinished unfinished;
  const std::string large(Unfinished::kBytesMax / 4, 'x');
  for (std::uint64_t i = 1; i <= 6; ++i) add(unfinished, i, large);
  EXPECT_FALSE(unfinished.behind(0).has_value());
  EXPECT_FALSE(unfinished.behind(1).has_value());
  ASSERT_TRUE(unfinished.behind(2).has_value());
  EXPECT_EQ(unfinished.behind(2)->size(), 4U);
  Unfinished many;
  for (std::uint64_t i = 1; i <= Unfinished::kCommandsMax + 1; ++i) add(many, i, "");
  EXPECT_FALSE(many.behind(0).has_value());
  EXPECT_TRUE(many.behind(1).has_value());
}

}  // namespace
}  // namespace flyt::rpc
