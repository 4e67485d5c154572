#include "base/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace flyt {
namespace {

constexpr std::uint64_t kBase = 0x390000000000;
constexpr std::uint64_t kPage = Pages::kPageBytes;

// Whether nothing is there.
bool is_free(std::uint64_t address) {
  void* got = ::mmap(pointer_at(address), kPage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  ::munmap(got, kPage);
  return got == pointer_at(address);
}

std::byte& at(std::uint64_t address) { return *static_cast<std::byte*>(pointer_at(address)); }

TEST(FixedPages, AreFreeAgainWhenTheLastRangeOnThemGoes) {
  FixedPages pages;
  ASSERT_TRUE(pages.map(kBase, 100));
  ASSERT_TRUE(pages.map(kBase + 100, 2 * kPage));
  EXPECT_FALSE(pages.map(kBase + kPage, kPage));
  pages.unmap(kBase, 100);
  EXPECT_FALSE(is_free(kBase));
  pages.unmap(kBase + 100, 2 * kPage);
  for (std::uint64_t page = 0; page < 3; ++page) EXPECT_TRUE(is_free(kBase + page * kPage));
}

TEST(FixedPages, ThatNoRangeHasAreNotTheirs) {
  FixedPages others;
  ASSERT_TRUE(others.map(kBase, 2 * kPage));
  FixedPages pages;
  EXPECT_FALSE(pages.map(kBase, 0));
  EXPECT_FALSE(pages.map(kBase + kPage, 0));
  // To the last address, and beyond.
  for (const std::uint64_t short_of : {kPage, std::uint64_t{1}, std::uint64_t{0}}) {
    EXPECT_FALSE(pages.map(kBase, ~std::uint64_t{0} - short_of - kBase + 1)) << short_of;
  }
  EXPECT_FALSE(pages.map(kBase, ~std::uint64_t{0}));
  EXPECT_FALSE(pages.map(kBase, ~std::uint64_t{0} - kPage));
  EXPECT_FALSE(is_free(kBase));
  EXPECT_FALSE(is_free(kBase + kPage));
  others.unmap(kBase, 2 * kPage);
}

TEST(FixedPages, ThatAreKeptAreForTheirOwnerAlone) {
  FixedPages pages;
  ASSERT_TRUE(pages.map(kBase, 4 * kPage));
  at(kBase + 2 * kPage) = std::byte{7};
  pages.unmap(kBase, 4 * kPage, true);
  for (std::uint64_t page = 0; page < 4; ++page) EXPECT_FALSE(is_free(kBase + page * kPage));
  // Some of them, and what lies beside.
  ASSERT_TRUE(pages.map(kBase + 2 * kPage, 4 * kPage));
  EXPECT_EQ(std::byte{0}, at(kBase + 2 * kPage));
  at(kBase + 5 * kPage) = std::byte{7};
  pages.unmap(kBase + 2 * kPage, 4 * kPage);
  EXPECT_FALSE(is_free(kBase + kPage));
  EXPECT_TRUE(is_free(kBase + 2 * kPage));
  ASSERT_TRUE(pages.map(kBase, 2 * kPage));
  pages.unmap(kBase, 2 * kPage);
  EXPECT_TRUE(is_free(kBase));
}

TEST(FixedPages, ThatAreKeptAreKnown) {
  FixedPages pages;
  ASSERT_TRUE(pages.map(kBase + kPage, 2 * kPage));
  EXPECT_FALSE(pages.keeps(kBase + kPage, 2 * kPage));
  pages.unmap(kBase + kPage, 2 * kPage, true);
  EXPECT_FALSE(pages.keeps(kBase, kPage));
  EXPECT_TRUE(pages.keeps(kBase, kPage + 1));
  EXPECT_TRUE(pages.keeps(kBase + 3 * kPage - 1, 1));
  EXPECT_FALSE(pages.keeps(kBase + 3 * kPage, kPage));
  EXPECT_EQ(1U, pages.kept());
  // What lies on them is to say that itself.
  ASSERT_TRUE(pages.map(kBase + kPage, 2 * kPage));
  EXPECT_EQ(0U, pages.kept());
  EXPECT_FALSE(pages.keeps(kBase + kPage, 2 * kPage));
  pages.unmap(kBase + kPage, 2 * kPage);
}

TEST(FixedPages, ThatSeveralHaveAreKeptForOneOfThem) {
  FixedPages pages;
  ASSERT_TRUE(pages.map(kBase, 100));
  ASSERT_TRUE(pages.map(kBase + 100, kPage));
  ASSERT_TRUE(pages.map(kBase + 100 + kPage, 100));
  pages.unmap(kBase, 100, true);
  EXPECT_TRUE(pages.keeps(kBase + 100, kPage));
  EXPECT_FALSE(pages.keeps(kBase + kPage, 100));
  pages.unmap(kBase + 100, kPage);
  EXPECT_FALSE(is_free(kBase));
  pages.unmap(kBase + 100 + kPage, 100);
  EXPECT_TRUE(is_free(kBase + kPage));
  ASSERT_TRUE(pages.map(kBase, kPage));
  pages.unmap(kBase, kPage);
  EXPECT_TRUE(is_free(kBase));
}

TEST(FixedPages, ThatAreKeptStaySoWhereSomethingElseIsInTheWay) {
  FixedPages pages;
  ASSERT_TRUE(pages.map(kBase, kPage));
  pages.unmap(kBase, kPage, true);
  FixedPages other;
  ASSERT_TRUE(other.map(kBase + 2 * kPage, kPage));
  EXPECT_FALSE(pages.map(kBase, 3 * kPage));
  EXPECT_FALSE(is_free(kBase));
  EXPECT_TRUE(is_free(kBase + kPage));
  other.unmap(kBase + 2 * kPage, kPage);
  ASSERT_TRUE(pages.map(kBase, 3 * kPage));
  at(kBase) = std::byte{7};
  pages.unmap(kBase, 3 * kPage);
  EXPECT_TRUE(is_free(kBase));
}

}  // namespace
}  // namespace flyt
