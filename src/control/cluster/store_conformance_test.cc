// What every store promises, asked of each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "control/cluster/candidate.h"
#include "control/cluster/etcd_store.h"
#include "control/cluster/sqlite_store.h"
#include "control/cluster/testing/fake_cluster.h"
#include "control/etcd/etcd_client.h"
#include "control/etcd/testing/etcd_process.h"
#include "control/etcd/testing/fake_etcd.h"

namespace flyt::cluster {
namespace {

using control::testing::EtcdProcess;
using control::testing::FakeEtcd;
using control::testing::FakeLink;
using testing::FakeClock;

// A place that outlives the stores in it.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::unique_ptr<Store> open() = 0;
};

class SqlitePlace final : public Place {
 public:
  SqlitePlace() : folder_(::testing::TempDir() + "flyt-store-XXXXXX") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~SqlitePlace() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<Store> open() override {
    auto store = SqliteStore::open(folder_ + "/cluster.db");
    EXPECT_TRUE(store.ok());
    return store ? std::move(*store) : nullptr;
  }

 private:
  std::string folder_;
};

class MemoryPlace final : public Place {
 public:
  std::unique_ptr<Store> open() override {
    return std::make_unique<testing::MemoryStore>(entries_, fuse_, full_);
  }

 private:
  testing::Entries entries_;
  testing::Fuse fuse_;
  bool full_ = false;
};

// Wins the election, and opens a store with that.
class Elected {
 public:
  std::unique_ptr<Store> open(control::Etcd& etcd, const Clock& clock) {
    if (candidate_) candidate_->resign("another one is wanted");
    state::Leader self;
    self.set_name("test");
    candidate_ = std::make_unique<Candidate>(etcd, clock, Candidate::Settings{"/t/", 60, self});
    candidate_->step();
    if (!candidate_->tenure()) candidate_->step();
    EXPECT_NE(candidate_->tenure(), nullptr) << candidate_->problem();
    if (!candidate_->tenure()) return nullptr;
    auto store = std::make_unique<EtcdStore>(etcd, "/t/", candidate_->tenure());
    EXPECT_TRUE(store->open().ok());
    return store;
  }

 private:
  std::unique_ptr<Candidate> candidate_;
};

class FakeEtcdPlace final : public Place {
 public:
  std::unique_ptr<Store> open() override { return elected_.open(link_, clock_); }

 private:
  FakeClock clock_;
  FakeEtcd etcd_{clock_};
  FakeLink link_{etcd_};
  Elected elected_;
};

class EtcdPlace final : public Place {
 public:
  explicit EtcdPlace(std::unique_ptr<EtcdProcess> process) : process_(std::move(process)) {
    auto etcd = control::connect_to_etcd({process_->address()}, {});
    EXPECT_TRUE(etcd.ok());
    etcd_ = std::move(*etcd);
    const Instant end = system_clock().now() + Duration(std::chrono::seconds(60));
    while (!etcd_->list("").ok() && system_clock().now() < end) {
    }
  }
  std::unique_ptr<Store> open() override { return elected_.open(*etcd_, system_clock()); }

 private:
  const std::unique_ptr<EtcdProcess> process_;
  std::unique_ptr<control::Etcd> etcd_;
  Elected elected_;
};

class StoreConformance : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (name == "sqlite") place_ = std::make_unique<SqlitePlace>();
    if (name == "memory") place_ = std::make_unique<MemoryPlace>();
    if (name == "fake_etcd") place_ = std::make_unique<FakeEtcdPlace>();
    if (name == "etcd") {
      if (!EtcdProcess::installed()) GTEST_SKIP() << "there is no etcd: apt install etcd-server";
      auto process = EtcdProcess::start();
      ASSERT_NE(process, nullptr);
      place_ = std::make_unique<EtcdPlace>(std::move(process));
    }
    store_ = place_->open();
    ASSERT_NE(store_, nullptr);
  }
  void again() {
    store_.reset();
    store_ = place_->open();
    ASSERT_NE(store_, nullptr);
  }
  Result<std::uint64_t> put(const std::string& key, const std::string& value,
                            std::uint64_t revision) {
    const std::vector<StoreCondition> conditions = {{key, revision}};
    const std::vector<StoreChange> changes = {{key, value}};
    return store_->commit(conditions, changes);
  }
  std::vector<std::string> keys(std::string_view prefix) {
    std::vector<std::string> found;
    const auto entries = store_->list(prefix);
    EXPECT_TRUE(entries.ok());
    for (const StoreEntry& entry : *entries) found.push_back(entry.key);
    return found;
  }

  std::unique_ptr<Place> place_;
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance,
                         ::testing::Values("sqlite", "memory", "fake_etcd", "etcd"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(StoreConformance, ListsInOrderWhatBeginsSo) {
  for (const char* key : {"b/2", "a/1", "b/1", "c"}) ASSERT_TRUE(put(key, "x", 0).ok());
  EXPECT_THAT(keys("b/"), ::testing::ElementsAre("b/1", "b/2"));
  EXPECT_THAT(keys(""), ::testing::ElementsAre("a/1", "b/1", "b/2", "c"));
  EXPECT_THAT(keys("d"), ::testing::ElementsAre());
  again();
  EXPECT_EQ(keys("").size(), 4u);
}

TEST_P(StoreConformance, KeepsBytes) {
  const std::string bytes("\0\xff'\"\n", 5);
  const auto revision = put("a", bytes, 0);
  ASSERT_TRUE(revision.ok());
  ASSERT_TRUE(put("b", "", 0).ok());
  again();
  const auto entries = store_->list("");
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].value, bytes);
  EXPECT_EQ((*entries)[0].revision, *revision);
  EXPECT_EQ((*entries)[1].value, "");
}

TEST_P(StoreConformance, ChangesAllOrNothing) {
  const std::uint64_t first = *put("a", "1", 0);
  const std::vector<StoreCondition> stale = {{"b", 0}, {"a", first + 7}};
  const std::vector<StoreChange> changes = {{"b", "2"}, {"a", std::nullopt}};
  EXPECT_EQ(store_->commit(stale, changes).error().code, ErrorCode::kDenied);
  EXPECT_THAT(keys(""), ::testing::ElementsAre("a"));
  const std::vector<StoreCondition> good = {{"b", 0}, {"a", first}};
  const auto second = store_->commit(good, changes);
  ASSERT_TRUE(second.ok());
  EXPECT_GT(*second, first);
  EXPECT_THAT(keys(""), ::testing::ElementsAre("b"));
  // What was refused has changed nothing that can be written later.
  EXPECT_TRUE(put("a", "3", 0).ok());
  EXPECT_TRUE(store_->mine());
}

TEST_P(StoreConformance, RefusesToMakeAKeyThatIsThereAndToChangeOneThatIsNot) {
  const std::uint64_t first = *put("a", "1", 0);
  EXPECT_EQ(put("a", "2", 0).error().code, ErrorCode::kDenied);
  EXPECT_EQ(put("b", "2", first).error().code, ErrorCode::kDenied);
  EXPECT_EQ((*store_->list(""))[0].value, "1");
}

TEST_P(StoreConformance, RevisionsGrowAcrossRuns) {
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const auto revision = put("key", std::to_string(i), last);
    ASSERT_TRUE(revision.ok()) << revision.error().message;
    EXPECT_GT(*revision, last);
    last = *revision;
    again();
  }
}

// Larger than any transaction of etcd.
TEST_P(StoreConformance, TakesManyChangesAtOnce) {
  constexpr int kMany = 1000;
  ASSERT_TRUE(put("many/0007", "before", 0).ok());
  std::vector<StoreCondition> conditions;
  std::vector<StoreChange> changes;
  for (int i = 0; i < kMany; ++i) {
    const std::string digits = std::to_string(i);
    const std::string key = "many/" + std::string(4 - digits.size(), '0') + digits;
    conditions.push_back({key, 0});
    changes.push_back({key, std::string(2000, 'x')});
  }
  EXPECT_EQ(store_->commit(conditions, changes).error().code, ErrorCode::kDenied);
  EXPECT_THAT(keys(""), ::testing::ElementsAre("many/0007"));
  conditions[7].revision = (*store_->list(""))[0].revision;
  const auto revision = store_->commit(conditions, changes);
  ASSERT_TRUE(revision.ok()) << revision.error().message;
  EXPECT_EQ(keys("many/").size(), 1000u);
  // Each is as old as the commit says.
  EXPECT_EQ(put("many/0003", "y", *revision - 1).error().code, ErrorCode::kDenied);
  const auto later = put("many/0003", "y", *revision);
  ASSERT_TRUE(later.ok()) << later.error().message;
  EXPECT_GT(*later, *revision);
  EXPECT_TRUE(put("many/0003", "z", *later).ok());
  EXPECT_TRUE(put("many/0999", "z", *revision).ok());
  again();
  EXPECT_EQ(keys("").size(), 1000u);
}

}  // namespace
}  // namespace flyt::cluster
