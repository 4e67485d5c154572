#include "control/node/state.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace flyt::node {
namespace {

namespace fs = std::filesystem;

Lease lease(const std::string& id, std::vector<std::uint32_t> groups) {
  Lease lease{.id = id, .name = "name-" + id, .gpu_uuid = "GPU-1"};
  lease.grant = {.gpu = 1, .mode = Mode::kShared, .groups = std::move(groups), .sms = 16};
  lease.grant.memory_bytes = 1ull << 40;
  lease.grant.overhead_bytes = 7;
  lease.sms_asked = 12;
  lease.priority = -5;
  lease.created_at = 100;
  lease.expires_at = 200;
  lease.labels = {{"team", "blue"}, {"k", ""}};
  lease.port = 7711;
  lease.server = {4711, 1ull << 40};
  lease.restarts = 3;
  lease.memory_pending = 1ull << 39;
  return lease;
}

Event event(std::uint64_t number) { return {number, 5, "kind", "id", "name", "text"}; }

class StateTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "flyt-state-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path() const { return folder_ + "/node.db"; }
  State open(std::uint64_t events_max = 10) {
    auto state = State::open(path(), events_max, {});
    EXPECT_TRUE(state) << state.error().message;
    return std::move(*state);
  }
  std::string refusal() {
    const auto state = State::open(path(), 10, {folder_ + "/leases"});
    EXPECT_FALSE(state);
    return state ? "" : state.error().message;
  }
  std::string folder_;
};

TEST_F(StateTest, KeepsALeaseWhole) {
  ASSERT_TRUE(open().add(lease("a", {2, 3}), event(1)));
  State again = open();
  const auto leases = again.leases();
  ASSERT_TRUE(leases);
  ASSERT_EQ(leases->size(), 1u);
  const Lease& got = leases->front();
  EXPECT_EQ(got.name, "name-a");
  EXPECT_EQ(got.gpu_uuid, "GPU-1");
  EXPECT_EQ(got.grant.mode, Mode::kShared);
  EXPECT_EQ(got.grant.groups, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(got.grant.memory_bytes, 1ull << 40);
  EXPECT_EQ(got.priority, -5);
  EXPECT_EQ(got.labels, (Labels{{"team", "blue"}, {"k", ""}}));
  EXPECT_EQ(got.server, (ProcessId{4711, 1ull << 40}));
  EXPECT_EQ(got.restarts, 3u);
  EXPECT_EQ(got.memory_pending, 1ull << 39);
  EXPECT_EQ(again.events()->size(), 1u);
}

TEST_F(StateTest, KeepsWhatChangesOfALease) {
  Lease changed = lease("a", {2, 3});
  {
    State state = open();
    ASSERT_TRUE(state.add(changed, event(1)));
    changed.memory_pending = 0;
    changed.restarts = 4;
    changed.grant.memory_bytes = 1ull << 38;
    ASSERT_TRUE(state.update(changed, event(2)));
  }
  const auto leases = open().leases();
  ASSERT_EQ(leases->size(), 1u);
  EXPECT_EQ(leases->front().memory_pending, 0u);
  EXPECT_EQ(leases->front().restarts, 4u);
  EXPECT_EQ(leases->front().grant.memory_bytes, 1ull << 38);
}

TEST_F(StateTest, BringsAFileOfTheFirstVersionUpToDate) {
  ASSERT_TRUE(open().add(lease("a", {2, 3}), event(1)));
  {
    auto database = Database::open(path(), {});
    ASSERT_TRUE(database->execute("ALTER TABLE leases DROP COLUMN memory_pending"));
    ASSERT_TRUE(database->execute(
        "DROP TABLE failed_gpus;"
        "DROP TABLE lease_groups;"
        "CREATE TABLE lease_groups (gpu INTEGER NOT NULL, number INTEGER NOT NULL,"
        " lease TEXT NOT NULL REFERENCES leases(id) ON DELETE CASCADE,"
        " PRIMARY KEY (gpu, number)) STRICT, WITHOUT ROWID;"
        "INSERT INTO lease_groups VALUES (1, 2, 'a'), (1, 3, 'a');"));
    ASSERT_TRUE(database->execute("PRAGMA user_version = 1"));
  }
  State state = open();
  const auto leases = state.leases();
  ASSERT_TRUE(leases) << leases.error().message;
  ASSERT_EQ(leases->size(), 1u);
  EXPECT_EQ(leases->front().restarts, 3u);
  EXPECT_EQ(leases->front().memory_pending, 0u);
  EXPECT_EQ(leases->front().grant.groups, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_TRUE(state.update(lease("a", {2, 3}), event(2)));
  EXPECT_EQ(open().leases()->front().memory_pending, 1ull << 39);
  EXPECT_TRUE(state.keep_failed("GPU-1", "boot", "why"));
}

TEST_F(StateTest, LetsLeasesShareGroupsOnceThatIsWanted) {
  {
    State state = open();
    ASSERT_TRUE(state.share_groups(true));
    ASSERT_TRUE(state.add(lease("a", {2, 3}), event(1)));
    ASSERT_TRUE(state.add(lease("b", {3, 4}), event(2)));
    ASSERT_TRUE(state.update(lease("a", {3}), event(3)));
    ASSERT_TRUE(state.add(lease("c", {2, 3}), event(4)));
  }
  State state = open();
  auto leases = state.leases();
  ASSERT_EQ(leases->size(), 3u);
  EXPECT_EQ((*leases)[0].grant.groups, (std::vector<std::uint32_t>{3}));
  EXPECT_EQ((*leases)[1].grant.groups, (std::vector<std::uint32_t>{3, 4}));
  EXPECT_EQ((*leases)[2].grant.groups, (std::vector<std::uint32_t>{2, 3}));
  // Those that share already go on, whatever is wanted now.
  ASSERT_TRUE(state.share_groups(false));
  EXPECT_TRUE(state.update(lease("b", {3, 4}), event(5)));
  ASSERT_TRUE(state.remove("a", event(6)));
  ASSERT_TRUE(state.remove("b", event(7)));
  ASSERT_TRUE(state.remove("c", event(8)));
  ASSERT_TRUE(state.share_groups(false));
  ASSERT_TRUE(state.add(lease("d", {2}), event(9)));
  EXPECT_FALSE(state.add(lease("e", {2}), event(10)));
}

TEST_F(StateTest, RefusesAGroupThatIsHeldAndChangesNothing) {
  State state = open();
  ASSERT_TRUE(state.add(lease("a", {2, 3}), event(1)));
  EXPECT_FALSE(state.add(lease("b", {3, 4}), event(2)));
  EXPECT_EQ(state.leases()->size(), 1u);
  EXPECT_EQ(state.events()->size(), 1u);
  ASSERT_TRUE(state.add(lease("b", {4}), event(2)));
  EXPECT_FALSE(state.update(lease("b", {2}), event(3)));
  EXPECT_EQ(state.leases()->back().grant.groups, (std::vector<std::uint32_t>{4}));
}

TEST_F(StateTest, RemovesALeaseWithAllThatIsItsOwn) {
  State state = open();
  ASSERT_TRUE(state.add(lease("a", {2, 3}), event(1)));
  ASSERT_TRUE(state.remove("a", event(2)));
  EXPECT_TRUE(state.leases()->empty());
  ASSERT_TRUE(state.add(lease("b", {2, 3}), event(3)));
}

TEST_F(StateTest, KeepsTheLastEvents) {
  State state = open(3);
  for (std::uint64_t i = 1; i <= 7; ++i) ASSERT_TRUE(state.append(event(i)));
  const auto events = state.events();
  ASSERT_EQ(events->size(), 3u);
  EXPECT_EQ(events->front().number, 5u);
}

TEST_F(StateTest, RemembersDrainingAndProcesses) {
  {
    State state = open();
    EXPECT_FALSE(*state.draining());
    ASSERT_TRUE(state.set_draining(true, event(1)));
    ASSERT_TRUE(state.remember("mps-0", {12, 34}));
  }
  State again = open();
  EXPECT_TRUE(*again.draining());
  EXPECT_EQ(*again.recall("mps-0"), (ProcessId{12, 34}));
  EXPECT_EQ(*again.recall("mps-1"), ProcessId{});
}

TEST_F(StateTest, KeepsWhyGpusHaveFailedUntilTheMachineIsStartedAgain) {
  using Failed = std::map<std::string, std::string>;
  {
    State state = open();
    EXPECT_TRUE(state.failed("first")->empty());
    ASSERT_TRUE(state.keep_failed("GPU-1", "first", "an error"));
    ASSERT_TRUE(state.keep_failed("GPU-2", "first", "a worse one"));
  }
  State again = open();
  EXPECT_EQ(*again.failed("first"), (Failed{{"GPU-1", "an error"}, {"GPU-2", "a worse one"}}));
  EXPECT_TRUE(again.failed("second")->empty());
  ASSERT_TRUE(again.keep_failed("GPU-2", "second", "once more"));
  EXPECT_EQ(*again.failed("first"), (Failed{{"GPU-1", "an error"}}));
  EXPECT_EQ(*again.failed("second"), (Failed{{"GPU-2", "once more"}}));
  ASSERT_TRUE(again.forget_failed());
  EXPECT_TRUE(again.failed("second")->empty());
}

TEST_F(StateTest, RemembersTheNewestLeaderOfEachCluster) {
  {
    State state = open();
    EXPECT_TRUE(state.leaders()->empty());
    ASSERT_TRUE(state.set_leader("a", 7, event(1)));
    ASSERT_TRUE(state.set_leader("b", INT64_MAX, event(2)));
    ASSERT_TRUE(state.set_leader("a", 8, event(3)));
    ASSERT_TRUE(state.set_draining(true, event(4)));
  }
  State again = open();
  EXPECT_EQ(*again.leaders(),
            (std::map<std::string, std::uint64_t>{{"a", 8}, {"b", std::uint64_t{INT64_MAX}}}));
  ASSERT_TRUE(again.forget_leaders(event(5)));
  EXPECT_TRUE(again.leaders()->empty());
  EXPECT_TRUE(*again.draining());
}

TEST_F(StateTest, IsReadableForItsUserAlone) {
  open();
  struct stat found {};
  ASSERT_EQ(::stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(StateTest, RefusesADamagedFileAndLeavesItAsItIs) {
  {
    State state = open();
    for (std::uint64_t i = 1; i <= 9; ++i) ASSERT_TRUE(state.append(event(i)));
    ASSERT_TRUE(state.add(lease("a", {2, 3}), event(10)));
  }
  // Closing has merged the log into the file.
  const auto size = fs::file_size(path());
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(size - 4096, 'x');
  }
  const std::string why = refusal();
  EXPECT_NE(why.find("cannot be used"), std::string::npos) << why;
  EXPECT_NE(why.find("move it away"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_EQ(fs::file_size(path()), size);
}

TEST_F(StateTest, TellsOfADamagedTreeInOneLine) {
  {
    State state = open(1000);
    for (std::uint64_t i = 1; i <= 200; ++i) ASSERT_TRUE(state.append(event(i)));
  }
  // Where the rows of the last page are, which is one of the events'.
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(path())) - 4096 + 8);
    file << std::string(64, 'x');
  }
  const std::string why = refusal();
  EXPECT_NE(why.find("in database main"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
}

TEST_F(StateTest, RefusesAnEmptyFileAndLeavesWhatIsBesideIt) {
  ASSERT_TRUE(open().add(lease("a", {2, 3}), event(1)));
  fs::resize_file(path(), 0);
  std::ofstream(path() + "-wal") << "what was written last";
  const std::string why = refusal();
  EXPECT_NE(why.find("node.db cannot be used: it is empty. Put a backup"), std::string::npos)
      << why;
  EXPECT_EQ(fs::file_size(path()), 0u);
  EXPECT_TRUE(fs::exists(path() + "-wal"));
}

TEST_F(StateTest, RefusesADatabaseOfSomebodyElseAndChangesNothing) {
  const std::string other = folder_ + "/other.db";
  ASSERT_TRUE(Database::make(other, "CREATE TABLE entries (key TEXT);", State::kSchemaVersion));
  const auto bytes = [this] {
    std::ifstream file(path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  fs::rename(other, path());
  const std::string before = bytes();
  EXPECT_NE(refusal().find("it has no table leases"), std::string::npos);
  EXPECT_EQ(bytes(), before);
}

TEST_F(StateTest, IsNotMadeAnewBesideFoldersOfLeases) {
  fs::create_directories(folder_ + "/leases/0123");
  EXPECT_NE(refusal().find("it is missing, and there are leases in " + folder_ + "/leases"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(path()));
  fs::remove(folder_ + "/leases/0123");
  EXPECT_TRUE(State::open(path(), 10, {folder_ + "/leases", folder_ + "/none"}));
}

TEST_F(StateTest, IsNotMadeAnewWhereWhatWasWrittenLastIsLeft) {
  std::ofstream(path() + "-wal") << "what was written last";
  EXPECT_NE(refusal().find("node.db-wal, is there"), std::string::npos);
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(StateTest, IsMadeWholeAfterATryThatWasCutOff) {
  std::ofstream(path() + ".new") << "half";
  std::ofstream(path() + ".new-journal") << "half";
  ASSERT_TRUE(open().add(lease("a", {2, 3}), event(1)));
  EXPECT_EQ(open().leases()->size(), 1u);
  EXPECT_FALSE(fs::exists(path() + ".new"));
}

TEST_F(StateTest, RefusesRowsThatNoLeaseCanHave) {
  ASSERT_TRUE(open().add(lease("a", {2, 3}), event(1)));
  const auto why = [this](const std::string& set) {
    const std::string saved = path() + ".saved";
    fs::copy_file(path(), saved, fs::copy_options::overwrite_existing);
    EXPECT_TRUE(Database::open(path(), {})->execute("UPDATE " + set));
    const auto leases = open().leases();
    fs::rename(saved, path());
    return leases ? "" : leases.error().message;
  };
  for (const char* column :
       {"sms = -5", "sms = 0", "sms_asked = 0", "memory_bytes = -1", "overhead_bytes = -1",
        "gpu = -1", "priority = 1001", "port = 65536", "server_pid = -7", "restarts = -1",
        "server_start = -1", "created_at = -1", "expires_at = -1", "memory_pending = -1"}) {
    EXPECT_NE(why(std::string("leases SET ") + column)
                  .find("lease a cannot have " + std::string(column) + ". Put"),
              std::string::npos)
        << column;
  }
  EXPECT_NE(why("leases SET mode = 'both'").find("lease a has an unknown mode"), std::string::npos);
  EXPECT_NE(why("leases SET memory_pending = memory_bytes").find("lease a waits for no smaller"),
            std::string::npos);
  EXPECT_NE(why("lease_groups SET number = 999 WHERE number = 3")
                .find("lease a cannot have group 999 of GPU 1"),
            std::string::npos);
  EXPECT_NE(why("lease_groups SET gpu = 0").find("lease a cannot have group 2 of GPU 0"),
            std::string::npos);
  EXPECT_EQ(why("leases SET restarts = 4"), "");
}

TEST_F(StateTest, RefusesWhatIsNoDatabase) {
  std::ofstream(path()) << "This is a text, and long enough not to be taken for an empty file. "
                        << std::string(5000, 'x');
  EXPECT_NE(refusal().find("cannot be used"), std::string::npos);
  EXPECT_GT(fs::file_size(path()), 5000u);
}

TEST_F(StateTest, RefusesANewerVersion) {
  open();
  const std::string newer = std::to_string(State::kSchemaVersion + 1);
  ASSERT_TRUE(Database::open(path(), {})->execute("PRAGMA user_version = " + newer));
  EXPECT_NE(refusal().find("schema version " + newer), std::string::npos);
}

TEST_F(StateTest, SaysThatTheDiskIsFullAndChangesNothing) {
  State state = open(100000);
  ASSERT_TRUE(state.limit_pages(1));
  Event large = event(1);
  large.text = std::string(200000, 'x');
  const Status status = state.append(large);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("disk full"), std::string::npos) << status.error().message;
  EXPECT_TRUE(state.events()->empty());
  ASSERT_TRUE(state.limit_pages(100000));
  EXPECT_TRUE(state.append(large));
}

}  // namespace
}  // namespace flyt::node
