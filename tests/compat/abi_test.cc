// Our types and prototypes against the CUDA toolkit's, where there is one.
#include <gtest/gtest.h>

#include "tests/compat/facts.h"

namespace flyt::compat {
namespace {

TEST(Abi, EqualsTheToolkitsHeaderInEveryValueLayoutAndPrototype) {
  const std::span<const Fact> ours = our_facts();
  const std::span<const Fact> theirs = toolkit_facts();
  ASSERT_GT(ours.size(), 2400U);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_STREQ(ours[i].name, theirs[i].name);
    EXPECT_EQ(ours[i].text(), theirs[i].text()) << ours[i].name;
  }
}

}  // namespace
}  // namespace flyt::compat
