#include "client/graphs/graphs.h"

#include <gtest/gtest.h>

#include <memory>

namespace flyt::client {
namespace {

TEST(ExecState, OfTheNextUserHasNothingOfTheLastOne) {
  const auto held = std::make_shared<int>(0);
  ExecState state;
  state.has_memory = true;
  // Only how long it is held counts here.
  state.lent.insert(std::shared_ptr<LentMemory>(held, nullptr));
  EXPECT_EQ(2, held.use_count());
  state.reset();
  EXPECT_FALSE(state.has_memory);
  EXPECT_TRUE(state.lent.empty());
  EXPECT_EQ(1, held.use_count());
}

TEST(LentRows, MeetWhereTheyHaveBytesInCommon) {
  const LentRows row{.first = 1000, .width = 100};
  EXPECT_TRUE(row.meet(row));
  EXPECT_TRUE(row.meet({.first = 1099, .width = 1}));
  EXPECT_TRUE(row.meet({.first = 901, .width = 100}));
  EXPECT_FALSE(row.meet({.first = 1100, .width = 100}));
  EXPECT_FALSE(row.meet({.first = 900, .width = 100}));
  // Of so many rows each one cannot be looked at.
  const LentRows many{.first = 0,
                      .width = 1,
                      .rows = 1 << 20,
                      .pitch = 1,
                      .slices = 1 << 20,
                      .slice_pitch = 1 << 20};
  EXPECT_FALSE(many.meet({.first = std::uint64_t{1} << 40,
                          .width = 1,
                          .rows = 1 << 20,
                          .pitch = 1,
                          .slices = 1 << 20,
                          .slice_pitch = 1 << 20}));
  // Columns of a matrix, side by side, and of one whose rows lie in the gaps of the other's.
  const LentRows left{.first = 0, .width = 16, .rows = 8, .pitch = 64};
  EXPECT_FALSE(left.meet({.first = 16, .width = 48, .rows = 8, .pitch = 64}));
  EXPECT_TRUE(left.meet({.first = 15, .width = 48, .rows = 8, .pitch = 64}));
  EXPECT_TRUE(left.meet({.first = 16, .width = 49, .rows = 7, .pitch = 64}));
  EXPECT_FALSE(left.meet({.first = 464, .width = 100, .rows = 1}));
  EXPECT_TRUE(left.meet({.first = 463, .width = 1, .rows = 1}));
  const LentRows slices{
      .first = 0, .width = 8, .rows = 2, .pitch = 16, .slices = 3, .slice_pitch = 128};
  EXPECT_FALSE(slices.meet({.first = 152, .width = 100}));
  EXPECT_TRUE(slices.meet({.first = 152, .width = 105}));
  EXPECT_TRUE(LentRows({.first = 272, .width = 1}).meet(slices));
}

}  // namespace
}  // namespace flyt::client
