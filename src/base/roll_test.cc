#include "base/roll.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace flyt {
namespace {

class RollTest : public ::testing::Test {
 protected:
  RollTest() {
    std::string pattern = ::testing::TempDir() + "flyt-roll-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/roll";
  }
  ~RollTest() override { std::filesystem::remove_all(folder_); }
  Roll open() const {
    auto roll = Roll::open(path_, 4096);
    EXPECT_TRUE(roll.ok()) << (roll ? "" : roll.error().message);
    return std::move(*roll);
  }
  std::string folder_;
  std::string path_;
};

// Else a disk that is full, now or later, would end whoever touches the next page.
TEST_F(RollTest, AllOfTheFileIsOnTheDisk) {
  constexpr std::size_t kBytes = 10 * 4096;
  {
    const Fd sparse(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (::fallocate(sparse.get(), 0, 0, 1) != 0) GTEST_SKIP() << "the file system reserves nothing";
    ASSERT_EQ(0, ::ftruncate(sparse.get(), kBytes));
  }
  const auto roll = Roll::open(path_, kBytes);
  ASSERT_TRUE(roll.ok()) << roll.error().message;
  struct stat found {};
  ASSERT_EQ(0, ::stat(path_.c_str(), &found));
  EXPECT_EQ(static_cast<std::size_t>(found.st_size), kBytes);
  EXPECT_GE(static_cast<std::size_t>(found.st_blocks) * 512, kBytes);
}

TEST_F(RollTest, APlaceIsLeftAndTakenAgain) {
  const Roll one = open();
  const Roll two = open();
  EXPECT_EQ(4U, one.take(4, 6));
  EXPECT_EQ(5U, two.take(4, 6));
  EXPECT_EQ(std::nullopt, two.take(4, 5));
  one.leave(4);
  EXPECT_EQ(5U, one.next_taken(0, 8));
  EXPECT_EQ(4U, two.take(4, 6));
}

TEST_F(RollTest, APlaceIsItsTakersUntilItIsGone) {
  const Roll watcher = open();
  EXPECT_EQ(std::nullopt, watcher.next_taken(0, 8));
  {
    const Roll one = open();
    const Roll two = open();
    EXPECT_EQ(0U, one.take(8));
    EXPECT_EQ(1U, two.take(8));
    EXPECT_TRUE(watcher.taken(0));
    EXPECT_EQ(0U, watcher.next_taken(0, 8));
    EXPECT_EQ(1U, watcher.next_taken(1, 8));
    EXPECT_EQ(std::nullopt, watcher.next_taken(2, 8));
    EXPECT_EQ(1U, one.next_taken(0, 8)) << "its own place is nobody else's";
  }
  EXPECT_FALSE(watcher.taken(0));
}

TEST_F(RollTest, AKilledProcessLeavesNothingButItsWords) {
  const Roll watcher = open();
  int ready[2];
  ASSERT_EQ(0, ::pipe(ready));
  const pid_t pid = ::fork();
  if (pid == 0) {
    const Roll own = open();
    const Roll::Door behind(own);
    own.take(8);
    *static_cast<unsigned*>(own.memory()) = 42;
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "r", 1);
    ::pause();
    ::_exit(0);
  }
  char letter = 0;
  ASSERT_EQ(1, ::read(ready[0], &letter, 1));
  EXPECT_TRUE(watcher.taken(0));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(watcher.taken(0));
  const Roll::Door behind(watcher);
  EXPECT_EQ(42U, *static_cast<const unsigned*>(watcher.memory()));
}

TEST_F(RollTest, TellsWhenAllPlacesAreTaken) {
  const Roll one = open();
  const Roll two = open();
  EXPECT_EQ(0U, one.take(1));
  EXPECT_EQ(std::nullopt, two.take(1));
}

TEST_F(RollTest, RefusesWhatOthersMayWriteAndWhatIsNoFile) {
  { const Roll made = open(); }
  ASSERT_EQ(0, ::chmod(path_.c_str(), 0666));
  EXPECT_FALSE(Roll::open(path_, 4096).ok());
  ASSERT_EQ(0, ::symlink(path_.c_str(), (folder_ + "/link").c_str()));
  EXPECT_FALSE(Roll::open(folder_ + "/link", 4096).ok());
  EXPECT_FALSE(Roll::open(folder_ + "/no/folder", 4096).ok());
}

}  // namespace
}  // namespace flyt
