#include "base/mappings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>

#include "base/bytes.h"
#include "base/pages.h"

namespace flyt {
namespace {

constexpr std::uint64_t kBytesOfPage = Pages::kPageBytes;

// Three pages of its own, whose protection a test changes; asked for in both ways.
class MappingsTest : public testing::TestWithParam<decltype(&pages_allow)> {
 protected:
  MappingsTest()
      : pages_(::mmap(nullptr, 3 * kBytesOfPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~MappingsTest() override { ::munmap(pages_, 3 * kBytesOfPage); }

  void protect(std::uint64_t page, int protection) {
    ASSERT_EQ(0, ::mprotect(pointer_at(at() + page * kBytesOfPage), kBytesOfPage, protection));
  }
  bool allow(std::uint64_t address, std::uint64_t bytes, PageUse use) const {
    return GetParam()(address, bytes, use);
  }
  std::uint64_t at() const { return address_of(pages_); }

 private:
  void* pages_;
};

TEST_P(MappingsTest, OrdinaryMemoryMayBeReadAndWritten) {
  EXPECT_TRUE(allow(at(), 3 * kBytesOfPage, PageUse::kRead));
  EXPECT_TRUE(allow(at(), 3 * kBytesOfPage, PageUse::kWrite));
  EXPECT_TRUE(allow(at() + 5, 1, PageUse::kWrite));
}

TEST_P(MappingsTest, OnePageThatMayNotBeWrittenIsEnough) {
  protect(1, PROT_READ);
  EXPECT_TRUE(allow(at(), 3 * kBytesOfPage, PageUse::kRead));
  EXPECT_FALSE(allow(at(), 3 * kBytesOfPage, PageUse::kWrite));
  EXPECT_TRUE(allow(at(), kBytesOfPage, PageUse::kWrite));
  EXPECT_FALSE(allow(at(), kBytesOfPage + 1, PageUse::kWrite));
  EXPECT_FALSE(allow(at() + 2 * kBytesOfPage - 1, 2, PageUse::kWrite));
  EXPECT_TRUE(allow(at() + 2 * kBytesOfPage, kBytesOfPage, PageUse::kWrite));
}

TEST_P(MappingsTest, APageWithoutAnyAccessIsNoMemoryToRead) {
  protect(2, PROT_NONE);
  EXPECT_TRUE(allow(at(), 2 * kBytesOfPage, PageUse::kRead));
  EXPECT_FALSE(allow(at(), 3 * kBytesOfPage, PageUse::kRead));
}

TEST_P(MappingsTest, WhatIsNotMappedIsNoMemory) {
  ASSERT_EQ(0, ::munmap(pointer_at(at() + kBytesOfPage), kBytesOfPage));
  EXPECT_TRUE(allow(at(), kBytesOfPage, PageUse::kWrite));
  EXPECT_FALSE(allow(at(), 3 * kBytesOfPage, PageUse::kRead));
  EXPECT_FALSE(allow(0x1000, 1, PageUse::kRead));
  EXPECT_FALSE(allow(at(), 0, PageUse::kRead));
  EXPECT_FALSE(allow(at(), ~std::uint64_t{0}, PageUse::kRead));
}

INSTANTIATE_TEST_SUITE_P(Asked, MappingsTest, testing::Values(&pages_allow));
INSTANTIATE_TEST_SUITE_P(Listed, MappingsTest, testing::Values(&listed_pages_allow));

}  // namespace
}  // namespace flyt
