#include "base/mappings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>

#include "base/bytes.h"
#include "base/pages.h"

namespace flyt {
namespace {

constexpr std::uint64_t kBytesOfPage = Pages::kPageBytes;

// Three pages of its own, whose protection a test changes.
class MappingsTest : public testing::Test {
 protected:
  MappingsTest()
      : pages_(::mmap(nullptr, 3 * kBytesOfPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~MappingsTest() override { ::munmap(pages_, 3 * kBytesOfPage); }

  void protect(std::uint64_t page, int protection) {
    ASSERT_EQ(0, ::mprotect(pointer_at(at() + page * kBytesOfPage), kBytesOfPage, protection));
  }
  std::uint64_t at() const { return address_of(pages_); }

 private:
  void* pages_;
};

TEST_F(MappingsTest, OrdinaryMemoryMayBeReadAndWritten) {
  EXPECT_TRUE(pages_allow(at(), 3 * kBytesOfPage, PageUse::kRead));
  EXPECT_TRUE(pages_allow(at(), 3 * kBytesOfPage, PageUse::kWrite));
  EXPECT_TRUE(pages_allow(at() + 5, 1, PageUse::kWrite));
}

TEST_F(MappingsTest, OnePageThatMayNotBeWrittenIsEnough) {
  protect(1, PROT_READ);
  EXPECT_TRUE(pages_allow(at(), 3 * kBytesOfPage, PageUse::kRead));
  EXPECT_FALSE(pages_allow(at(), 3 * kBytesOfPage, PageUse::kWrite));
  EXPECT_TRUE(pages_allow(at(), kBytesOfPage, PageUse::kWrite));
  EXPECT_FALSE(pages_allow(at(), kBytesOfPage + 1, PageUse::kWrite));
  EXPECT_FALSE(pages_allow(at() + 2 * kBytesOfPage - 1, 2, PageUse::kWrite));
  EXPECT_TRUE(pages_allow(at() + 2 * kBytesOfPage, kBytesOfPage, PageUse::kWrite));
}

TEST_F(MappingsTest, APageWithoutAnyAccessIsNoMemoryToRead) {
  protect(2, PROT_NONE);
  EXPECT_TRUE(pages_allow(at(), 2 * kBytesOfPage, PageUse::kRead));
  EXPECT_FALSE(pages_allow(at(), 3 * kBytesOfPage, PageUse::kRead));
}

TEST_F(MappingsTest, WhatIsNotMappedIsNoMemory) {
  ASSERT_EQ(0, ::munmap(pointer_at(at() + kBytesOfPage), kBytesOfPage));
  EXPECT_TRUE(pages_allow(at(), kBytesOfPage, PageUse::kWrite));
  EXPECT_FALSE(pages_allow(at(), 3 * kBytesOfPage, PageUse::kRead));
  EXPECT_FALSE(pages_allow(0x1000, 1, PageUse::kRead));
  EXPECT_FALSE(pages_allow(at(), 0, PageUse::kRead));
  EXPECT_FALSE(pages_allow(at(), ~std::uint64_t{0}, PageUse::kRead));
}

}  // namespace
}  // namespace flyt
