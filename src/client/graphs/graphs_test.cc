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

}  // namespace
}  // namespace flyt::client
