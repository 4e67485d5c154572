// Our types of NVML against the toolkit's, where there is one.
#include <gtest/gtest.h>

#include "tests/compat/facts.h"

namespace flyt::compat {
namespace {

// Names of tags are NVML's own affair: it is values, sizes, alignments and offsets that programs
// are built with.
TEST(NvmlAbi, EqualsTheToolkitsHeaderInEveryValueAndLayout) {
  const std::span<const Fact> ours = our_facts();
  const std::span<const Fact> theirs = toolkit_facts();
  ASSERT_GT(ours.size(), 200U);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_STREQ(ours[i].name, theirs[i].name);
    EXPECT_EQ(ours[i].value, theirs[i].value) << ours[i].name;
    EXPECT_EQ(ours[i].alignment, theirs[i].alignment) << ours[i].name;
  }
}

}  // namespace
}  // namespace flyt::compat
