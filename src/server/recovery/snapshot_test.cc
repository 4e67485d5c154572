#include "server/recovery/snapshot.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/random.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t kOffset = 4096;

class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest() : file_(::memfd_create("snapshot-test", MFD_CLOEXEC)) {
    EXPECT_EQ(0, ::ftruncate(file_.get(), static_cast<off_t>(kOffset + Snapshot::kBytes)));
  }
  static std::vector<SavedVariable> two() {
    return {{.owner = 7,
             .told = true,
             .context = 3,
             .address = 4096,
             .bytes = 5,
             .name = "a",
             .loaded = {std::byte{9}}},
            {.owner = 8, .of_library = true, .context = 4, .address = 99, .bytes = 3, .name = ""}};
  }
  void write(std::uint32_t half, const std::vector<SavedVariable>& variables, std::byte value) {
    Snapshot snapshot(file_, kOffset);
    const auto contents = snapshot.begin(half, variables);
    ASSERT_TRUE(contents.ok());
    std::memset(contents->data(), static_cast<int>(value), contents->size());
  }
  void put(std::uint64_t at, std::uint64_t value) const {
    ASSERT_EQ(8, ::pwrite(file_.get(), &value, 8, static_cast<off_t>(kOffset + at)));
  }

  Fd file_;
};

TEST_F(SnapshotTest, TellsWhatWasWritten) {
  write(0, two(), std::byte{1});
  write(1, {}, std::byte{2});
  const auto read = Snapshot::read(file_, kOffset, 0);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->variables.size(), 2U);
  EXPECT_EQ(read->variables[0].owner, 7U);
  EXPECT_TRUE(read->variables[0].told);
  EXPECT_FALSE(read->variables[0].of_library);
  EXPECT_EQ(read->variables[0].context, 3U);
  EXPECT_EQ(read->variables[0].address, 4096U);
  EXPECT_EQ(read->variables[0].bytes, 5U);
  EXPECT_EQ(read->variables[0].name, "a");
  EXPECT_EQ(read->variables[0].loaded, Digest{std::byte{9}});
  EXPECT_EQ(read->variables[1].loaded, Digest{});
  EXPECT_TRUE(read->variables[1].of_library);
  EXPECT_EQ(read->contents, std::vector<std::byte>(8, std::byte{1}));
  const auto none = Snapshot::read(file_, kOffset, 1);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->variables.empty());
}

TEST_F(SnapshotTest, RefusesMoreThanFits) {
  Snapshot snapshot(file_, kOffset);
  SavedVariable large{.bytes = Snapshot::kContentsBytesMax};
  EXPECT_TRUE(snapshot.begin(0, {large}).ok());
  EXPECT_FALSE(snapshot.begin(0, {large, {.bytes = 1}}).ok());
  EXPECT_FALSE(snapshot.begin(0, {large, {.bytes = ~std::uint64_t{0}}}).ok());
  const std::vector<SavedVariable> many(200'000, SavedVariable{.name = std::string(10, 'a')});
  EXPECT_FALSE(snapshot.begin(0, many).ok());
  EXPECT_FALSE(snapshot.begin(0, {{.name = std::string(Snapshot::kNameBytesMax + 1, 'a')}}).ok());
}

TEST_F(SnapshotTest, RefusesAFileThatIsNone) {
  EXPECT_FALSE(Snapshot::read(file_, kOffset, 0).ok());
  EXPECT_FALSE(Snapshot::read(Fd(), kOffset, 0).ok());
  write(0, two(), std::byte{1});
  EXPECT_FALSE(Snapshot::read(file_, kOffset, 2).ok());
  // Layout, bytes of the directory, variables; an entry's size and its name's.
  for (const std::uint64_t at : {0, 8, 16, 24 + 16, 24 + 64}) {
    write(0, two(), std::byte{1});
    put(at, ~std::uint64_t{0});
    EXPECT_FALSE(Snapshot::read(file_, kOffset, 0).ok()) << at;
  }
  write(0, two(), std::byte{1});
  ASSERT_EQ(0, ::ftruncate(file_.get(), kOffset + Snapshot::kDirectoryBytesMax + 4));
  EXPECT_FALSE(Snapshot::read(file_, kOffset, 0).ok());
}

TEST_F(SnapshotTest, ReadsAnyBytes) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 2000; ++round) {
    write(0, two(), std::byte{1});
    for (int change = 0; change < 3; ++change) {
      const auto value = static_cast<std::uint8_t>(random.below(256));
      const auto at = static_cast<off_t>(kOffset + random.below(24 + 2 * 72));
      ASSERT_EQ(1, ::pwrite(file_.get(), &value, 1, at));
    }
    const auto read = Snapshot::read(file_, kOffset, 0);
    EXPECT_LE(read ? read->contents.size() : 0, Snapshot::kContentsBytesMax);
  }
}

}  // namespace
}  // namespace flyt::server
