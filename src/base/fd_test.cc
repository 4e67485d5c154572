#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace flyt {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(Fd, ClosesOnceAfterMovesAndAssignment) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Fd write_end(ends[1]);
  {
    Fd first(ends[0]);
    Fd second(std::move(first));
    EXPECT_FALSE(first.valid());
    EXPECT_TRUE(is_open(ends[0]));
    second = Fd();
    EXPECT_FALSE(is_open(ends[0]));
  }
  EXPECT_TRUE(is_open(write_end.get()));
}

TEST(Fd, LeavesAReleasedDescriptorOpen) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int raw = Fd(ends[0]).release();
  EXPECT_TRUE(is_open(raw));
  ::close(raw);
  ::close(ends[1]);
}

}  // namespace
}  // namespace flyt
