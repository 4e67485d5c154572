#include "control/cluster/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "control/settings/settings.h"

namespace flyt::cluster {
namespace {

using ::testing::HasSubstr;

class SqliteStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "flyt-store-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/cluster.db"; }
  std::unique_ptr<SqliteStore> open() {
    auto store = SqliteStore::open(path());
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }
  static Result<std::uint64_t> put(Store& store, const std::string& key, const std::string& value,
                                   std::uint64_t revision) {
    const std::vector<StoreCondition> conditions = {{key, revision}};
    const std::vector<StoreChange> changes = {{key, value}};
    return store.commit(conditions, changes);
  }

  std::string folder_;
};

TEST_F(SqliteStoreTest, KeepsBytesAcrossRuns) {
  const std::string bytes("\0\xff'\"\n", 5);
  {
    const auto store = open();
    ASSERT_TRUE(put(*store, "a/1", bytes, 0).ok());
    ASSERT_TRUE(put(*store, "b/1", "", 0).ok());
  }
  const auto store = open();
  const auto entries = store->list("a/");
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_EQ((*entries)[0].value, bytes);
  EXPECT_EQ(store->list("")->size(), 2u);
}

TEST_F(SqliteStoreTest, ChangesAllOrNothing) {
  const auto store = open();
  const std::uint64_t first = *put(*store, "a", "1", 0);
  const std::vector<StoreCondition> stale = {{"b", 0}, {"a", first + 7}};
  const std::vector<StoreChange> changes = {{"b", "2"}, {"a", std::nullopt}};
  EXPECT_EQ(store->commit(stale, changes).error().code, ErrorCode::kDenied);
  EXPECT_EQ(store->list("")->size(), 1u);
  const std::vector<StoreCondition> good = {{"b", 0}, {"a", first}};
  const auto second = store->commit(good, changes);
  ASSERT_TRUE(second.ok());
  EXPECT_GT(*second, first);
  EXPECT_EQ(store->list("")->size(), 1u);
  EXPECT_EQ((*store->list(""))[0].key, "b");
}

TEST_F(SqliteStoreTest, RefusesToMakeAKeyThatIsThere) {
  const auto store = open();
  ASSERT_TRUE(put(*store, "a", "1", 0).ok());
  EXPECT_EQ(put(*store, "a", "2", 0).error().code, ErrorCode::kDenied);
  EXPECT_EQ((*store->list("a"))[0].value, "1");
}

TEST_F(SqliteStoreTest, RevisionsGrowAcrossRuns) {
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const auto store = open();
    const std::vector<StoreChange> changes = {{"key", std::to_string(i)}};
    const auto revision = store->commit({}, changes);
    ASSERT_TRUE(revision.ok());
    EXPECT_GT(*revision, last);
    last = *revision;
  }
}

TEST_F(SqliteStoreTest, IsOneManagersAlone) {
  const auto store = open();
  const auto second = SqliteStore::open(path());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kDenied);
  EXPECT_THAT(second.error().message, HasSubstr("another cluster manager"));
}

TEST_F(SqliteStoreTest, ADamagedFileIsRefusedWithAdviceAndKept) {
  {
    const auto store = open();
    for (int i = 0; i < 500; ++i) {
      ASSERT_TRUE(put(*store, "key" + std::to_string(i), std::string(100, 'x'), 0).ok());
    }
  }
  std::string whole = *control::read_file(path());
  for (std::size_t i = 4096; i < whole.size(); i += 7) whole[i] = 'z';
  std::ofstream(path(), std::ios::binary) << whole;
  const auto store = SqliteStore::open(path());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(store.error().message, HasSubstr("move it away"));
  EXPECT_EQ(*control::read_file(path()), whole);
}

TEST_F(SqliteStoreTest, AFileOfANewerVersionIsRefused) {
  open();
  ASSERT_TRUE(control::Database::open(path(), {})->execute("PRAGMA user_version = 9").ok());
  const auto store = SqliteStore::open(path());
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.error().message, HasSubstr("schema version 9"));
}

TEST_F(SqliteStoreTest, RefusesWhatIsNoStoreOfOurs) {
  const auto refusal = [this] {
    const auto store = SqliteStore::open(path());
    return store ? "" : store.error().message;
  };
  { std::ofstream empty(path()); }
  EXPECT_THAT(refusal(), HasSubstr("it is empty. Put a backup of it there"));
  EXPECT_EQ(std::filesystem::file_size(path()), 0u);
  std::filesystem::remove(path());
  ASSERT_TRUE(control::Database::make(path(), "CREATE TABLE other (a TEXT);", 0).ok());
  EXPECT_THAT(refusal(), HasSubstr("it has no table entries"));
  std::filesystem::remove(path());
  std::ofstream(path() + "-wal") << "what was written last";
  EXPECT_THAT(refusal(), HasSubstr("it is missing"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

}  // namespace
}  // namespace flyt::cluster
