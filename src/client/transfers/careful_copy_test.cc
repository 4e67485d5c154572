#include "client/transfers/careful_copy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

namespace flyt::client {
namespace {

constexpr std::size_t kPageBytes = 4096;

// Three pages, the middle one without memory.
class Hole {
 public:
  Hole()
      : base_(static_cast<std::byte*>(::mmap(nullptr, 3 * kPageBytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    ::munmap(base_ + kPageBytes, kPageBytes);
  }
  ~Hole() {
    ::munmap(base_, kPageBytes);
    ::munmap(base_ + 2 * kPageBytes, kPageBytes);
  }
  std::byte* at(std::size_t offset) const { return base_ + offset; }

 private:
  std::byte* const base_;
};

TEST(CarefulCopy, ReadsWhatIsThere) {
  const CarefulCopy copy;
  const std::vector<std::byte> from(3 * kPageBytes, std::byte{7});
  std::vector<std::byte> to(3 * kPageBytes);
  copy.read(to, from.data());
  EXPECT_EQ(from, to);
}

TEST(CarefulCopy, LeavesWhatCannotBeRead) {
  const CarefulCopy copy;
  const Hole hole;
  std::fill_n(hole.at(0), kPageBytes, std::byte{1});
  std::fill_n(hole.at(2 * kPageBytes), kPageBytes, std::byte{3});
  std::vector<std::byte> to(2 * kPageBytes, std::byte{9});
  copy.read(to, hole.at(kPageBytes / 2));
  EXPECT_EQ(std::byte{1}, to[kPageBytes / 2 - 1]);
  EXPECT_EQ(std::byte{9}, to[kPageBytes / 2]);
  EXPECT_EQ(std::byte{9}, to[kPageBytes + kPageBytes / 2 - 1]);
  EXPECT_EQ(std::byte{3}, to[kPageBytes + kPageBytes / 2]);
}

TEST(CarefulCopy, WritesOnlyWhatDiffers) {
  const CarefulCopy copy;
  std::vector<std::byte> present(16, std::byte{5});
  const std::vector<std::byte> before(16);
  std::vector<std::byte> after = before;
  after[3] = after[4] = after[9] = std::byte{8};
  copy.write(present.data(), after, before);
  for (std::size_t i = 0; i < present.size(); ++i) {
    EXPECT_EQ(i == 3 || i == 4 || i == 9 ? std::byte{8} : std::byte{5}, present[i]) << i;
  }
}

TEST(CarefulCopy, WritesNothingWhereThereIsNoMemory) {
  const CarefulCopy copy;
  const Hole hole;
  const std::vector<std::byte> before(2);
  const std::vector<std::byte> after = {std::byte{1}, std::byte{2}};
  copy.write(hole.at(kPageBytes), after, before);
  copy.write(hole.at(0), after, before);
  EXPECT_EQ(std::byte{2}, *hole.at(1));
}

}  // namespace
}  // namespace flyt::client
