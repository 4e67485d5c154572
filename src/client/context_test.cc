#include "client/context.h"

#include <gtest/gtest.h>

namespace flyt::client {
namespace {

class ContextStack : public testing::Test {
 protected:
  ~ContextStack() override {
    while (thread_state().current_state != nullptr) pop_current();
  }
  Contexts contexts_{2};
  ContextState* first_ = contexts_.make(0, true);
  ContextState* second_ = contexts_.make(1, false);
};

TEST_F(ContextStack, PopsInTheOrderOfPushes) {
  push_current(first_);
  push_current(second_);
  push_current(second_);
  EXPECT_EQ(thread_state().current_state, second_);
  pop_current();
  pop_current();
  EXPECT_EQ(thread_state().current_state, first_);
  pop_current();
  EXPECT_EQ(thread_state().current_state, nullptr);
  EXPECT_EQ(thread_state().current, 0U);
}

TEST_F(ContextStack, SettingReplacesTheTopAlone) {
  push_current(first_);
  push_current(first_);
  set_current(second_);
  pop_current();
  EXPECT_EQ(thread_state().current_state, first_);
}

TEST_F(ContextStack, PoppingNothingIsHarmless) {
  pop_current();
  EXPECT_EQ(thread_state().current_state, nullptr);
}

TEST_F(ContextStack, ContextsHaveIdsAndIndicesOfTheirOwn) {
  EXPECT_NE(first_->id, second_->id);
  EXPECT_NE(first_->index, 0U);
  EXPECT_NE(first_->index, second_->index);
  EXPECT_EQ(contexts_.find(static_cast<CUcontext>(pointer_at(first_->handle))), first_);
  EXPECT_EQ(contexts_.find(static_cast<CUcontext>(pointer_at(0x1234))), nullptr);
}

}  // namespace
}  // namespace flyt::client
