#include "wire/handle.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace flyt::wire {
namespace {

TEST(Handle, GivesBackWhatItWasMadeOf) {
  for (std::uint8_t kind = 1; kind <= kHandleKindMax; ++kind) {
    for (const std::uint32_t generation : {1U, 2U, kHandleGenerationMax}) {
      for (const std::uint32_t index : {1U, 77U, kHandleIndexMax}) {
        const Handle handle = Handle::make(static_cast<HandleKind>(kind), generation, index);
        EXPECT_TRUE(handle.valid_as(static_cast<HandleKind>(kind)));
        EXPECT_EQ(handle.generation(), generation);
        EXPECT_EQ(handle.index(), index);
        EXPECT_NE(to_string(handle.kind()), "unknown");
      }
    }
  }
}

TEST(Handle, LooksLikeAnAlignedUserSpacePointerWhereNothingIsMapped) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const Handle handle =
        Handle::make(static_cast<HandleKind>(1 + random.below(kHandleKindMax)),
                     static_cast<std::uint32_t>(1 + random.below(kHandleGenerationMax)),
                     static_cast<std::uint32_t>(1 + random.below(kHandleIndexMax)));
    EXPECT_EQ(handle.value % 16, 0u);
    EXPECT_GE(handle.value, 0x6000'0000'0000u);
    EXPECT_LT(handle.value, 0x7000'0000'0000u);
  }
}

TEST(Handle, RefusesWhatCannotBeOne) {
  const std::uint64_t good = Handle::make(HandleKind::kEvent, 3, 9).value;
  EXPECT_TRUE(Handle{good}.valid());
  EXPECT_FALSE(Handle{}.valid());
  EXPECT_FALSE(Handle{kStreamLegacy}.valid());
  EXPECT_FALSE(Handle{kStreamPerThread}.valid());
  EXPECT_FALSE(Handle{good + 1}.valid());
  EXPECT_FALSE(Handle{good | std::uint64_t{1} << 63}.valid());
  EXPECT_FALSE(Handle{good & ~(Handle::kTag << 44)}.valid());
  EXPECT_FALSE(Handle::make(HandleKind::kEvent, 0, 9).valid());
  EXPECT_FALSE(Handle::make(HandleKind::kEvent, 3, 0).valid());
  EXPECT_FALSE(Handle::make(static_cast<HandleKind>(0), 3, 9).valid());
  EXPECT_FALSE(Handle::make(static_cast<HandleKind>(kHandleKindMax + 1), 3, 9).valid());
  EXPECT_FALSE(Handle{good}.valid_as(HandleKind::kStream));
}

TEST(Handle, NeverCountsAGenerationToZero) {
  EXPECT_EQ(next_generation(1), 2u);
  EXPECT_EQ(next_generation(kHandleGenerationMax), 1u);
}

}  // namespace
}  // namespace flyt::wire
