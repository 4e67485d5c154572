// A real etcd, where there is one.
#include "control/etcd/etcd_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "control/etcd/testing/etcd_process.h"
#include "control/pki/certificate.h"

namespace flyt::control {
namespace {

using ::testing::ElementsAre;
using testing::EtcdProcess;
using ::testing::HasSubstr;

constexpr Duration kPatience = std::chrono::seconds(60);

template <class Condition>
bool soon(Condition condition) {
  const Instant end = system_clock().now() + kPatience;
  while (!condition()) {
    if (system_clock().now() > end) return false;
    // lint: allow(sleep): another process is waited for.
    system_clock().sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

EtcdCompare made(const std::string& key, std::uint64_t revision) {
  return {key, EtcdCompare::What::kCreated, revision};
}

class EtcdTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdProcess::installed()) GTEST_SKIP() << "there is no etcd: apt install etcd-server";
    process_ = EtcdProcess::start();
    ASSERT_NE(process_, nullptr);
    auto etcd = connect_to_etcd({process_->address()}, {});
    ASSERT_TRUE(etcd.ok());
    etcd_ = std::move(*etcd);
    ASSERT_TRUE(soon([this] { return etcd_->list("").ok(); }));
  }

  std::unique_ptr<EtcdProcess> process_;
  std::unique_ptr<Etcd> etcd_;
};

TEST_F(EtcdTest, ChangesUnderConditionsAndTellsOfIt) {
  const auto first = etcd_->commit({made("a/1", 0)}, {{"a/1", "x", 0}, {"a/2", "y", 0}});
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_TRUE(first->done);
  EXPECT_FALSE(etcd_->commit({made("a/1", 0)}, {{"a/1", "z", 0}})->done);
  const auto second = etcd_->commit({{"a/1", EtcdCompare::What::kModified, first->revision}},
                                    {{"a/1", "z", 0}, {"a/2", std::nullopt, 0}});
  ASSERT_TRUE(second.ok() && second->done);
  EXPECT_GT(second->revision, first->revision);
  const auto entries = etcd_->list("a/");
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->entries.size(), 1u);
  EXPECT_EQ(entries->entries[0].value, "z");
  EXPECT_EQ(entries->entries[0].created, first->revision);
  EXPECT_EQ(entries->entries[0].modified, second->revision);

  std::vector<std::string> seen;
  const Status status =
      etcd_->watch("a/", first->revision, [&seen](const std::vector<EtcdEntry>& changes) {
        for (const EtcdEntry& one : changes) {
          seen.push_back(one.key + (one.created == 0 ? " gone" : "=" + one.value));
        }
        return seen.size() < 2;
      });
  EXPECT_TRUE(status.ok());
  EXPECT_THAT(seen, ElementsAre("a/1=z", "a/2 gone"));
}

TEST_F(EtcdTest, ReadsInPagesWhatIsThereAtOneMoment) {
  for (int i = 0; i < 50; ++i) {
    std::vector<EtcdChange> changes;
    for (int j = 0; j < 100; ++j) {
      changes.push_back({"many/" + std::to_string(i) + "/" + std::to_string(j), "v", 0});
    }
    ASSERT_TRUE(etcd_->commit({}, changes).ok());
  }
  EXPECT_EQ(etcd_->list("many/")->entries.size(), 5000u);
  EXPECT_EQ(etcd_->list("")->entries.size(), 5000u);
}

TEST_F(EtcdTest, SaysForCertainWhatItDoesNotTake) {
  std::vector<EtcdChange> changes;
  for (std::size_t i = 0; i <= kEtcdOperationsMax; ++i) {
    changes.push_back({std::to_string(i), "v", 0});
  }
  EXPECT_EQ(etcd_->commit({}, changes).error().code, ErrorCode::kInvalid);
  changes.resize(1);
  changes[0].value = std::string(4 << 20, 'x');
  EXPECT_NE(etcd_->commit({}, changes).error().code, ErrorCode::kLost);
  changes[0].value = std::string(kEtcdRequestBytesMax, 'x');
  EXPECT_TRUE(etcd_->commit({}, changes).ok());
}

TEST_F(EtcdTest, AKeyGoesWithItsLease) {
  const auto lease = etcd_->grant(2);
  ASSERT_TRUE(lease.ok());
  ASSERT_TRUE(etcd_->commit({}, {{"mine", "x", lease->id}, {"other", "x", 0}})->done);
  EXPECT_TRUE(etcd_->keep(lease->id).ok());
  EXPECT_EQ(etcd_->list("mine")->entries.size(), 1u);
  // Nobody keeps it.
  EXPECT_TRUE(soon([this] { return etcd_->list("mine")->entries.empty(); }));
  EXPECT_EQ(etcd_->keep(lease->id).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(etcd_->list("other")->entries.size(), 1u);
  const auto second = etcd_->grant(60);
  ASSERT_TRUE(etcd_->commit({}, {{"mine", "x", second->id}})->done);
  EXPECT_TRUE(etcd_->revoke(second->id).ok());
  EXPECT_TRUE(etcd_->list("mine")->entries.empty());
}

TEST_F(EtcdTest, OneThatDoesNotAnswerIsLostAndFoundAgain) {
  process_->hold(true);
  const auto held = etcd_->commit({}, {{"a", "x", 0}});
  process_->hold(false);
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.error().code, ErrorCode::kLost);
  EXPECT_TRUE(soon([this] { return etcd_->list("").ok(); }));
  process_->kill();
  EXPECT_EQ(etcd_->commit({}, {{"b", "x", 0}}).error().code, ErrorCode::kLost);
  ASSERT_TRUE(process_->restart());
  EXPECT_TRUE(soon([this] { return etcd_->commit({}, {{"c", "x", 0}}).ok(); }));
}

TEST_F(EtcdTest, AWatchEndsWhenItIsStopped) {
  std::atomic<bool> ended = false;
  std::thread watcher([&] {
    EXPECT_FALSE(etcd_->watch("", 0, [](const std::vector<EtcdEntry>&) { return true; }).ok());
    ended = true;
  });
  etcd_->stop();
  watcher.join();
  EXPECT_TRUE(ended);
}

// The question itself was never sent: nobody listens, and it is waited for that somebody does.
TEST(UnreachableEtcdTest, AWatchThatIsStoppedBeforeItBeganIsLost) {
  const auto etcd = connect_to_etcd({"127.0.0.1:1"}, {});
  ASSERT_TRUE(etcd.ok()) << etcd.error().message;
  std::atomic<bool> ended = false;
  std::thread watcher([&] {
    EXPECT_FALSE((*etcd)->watch("", 0, [](const std::vector<EtcdEntry>&) { return true; }).ok());
    ended = true;
  });
  // lint: allow(sleep): the watch is to be under way, and nothing tells that it is.
  system_clock().sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(ended);
  (*etcd)->stop();
  watcher.join();
  EXPECT_TRUE(ended);
}

// An etcd that wants certificates, and two authorities: its own, and one that it does not know.
class EtcdTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdProcess::installed()) GTEST_SKIP() << "there is no etcd: apt install etcd-server";
    folder_ = std::filesystem::temp_directory_path() / "flyt-etcd-tls-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    for (const char* name : {"own", "other"}) {
      const auto authority = pki::make_authority(name, 2);
      ASSERT_TRUE(authority.ok());
      write(std::string(name) + ".ca", authority->certificate);
      for (const char* who : {"etcd", "manager", "elsewhere"}) {
        const std::string host = std::string(who) == "elsewhere" ? "10.0.0.9" : "127.0.0.1";
        const auto pair = pki::issue(*authority, {who, "admin", {host}, 1});
        ASSERT_TRUE(pair.ok());
        write(std::string(name) + "." + who + ".crt", pair->certificate);
        write(std::string(name) + "." + who + ".key", pair->key);
      }
    }
  }
  void TearDown() override {
    process_.reset();
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  TlsFiles files(const std::string& authority, const std::string& who,
                 const std::string& trusts) const {
    const std::string front = folder_ + "/" + authority + "." + who;
    return {front + ".crt", front + ".key", folder_ + "/" + trusts + ".ca"};
  }
  // What one with these files is told by an etcd that answers others.
  ErrorCode refusal(const TlsFiles& files) const {
    const auto etcd = connect_to_etcd({process_->address()}, files);
    if (!etcd) return etcd.error().code;
    const auto found = (*etcd)->list("");
    EXPECT_FALSE(found.ok());
    const auto written = (*etcd)->commit({}, {{"theirs", "x", 0}});
    EXPECT_FALSE(written.ok());
    return found ? ErrorCode::kInvalid : found.error().code;
  }

  std::string folder_;
  std::unique_ptr<EtcdProcess> process_;
};

TEST_F(EtcdTlsTest, OnlyThoseWithItsAuthoritysCertificatesAreServed) {
  process_ = EtcdProcess::start(files("own", "etcd", "own"));
  ASSERT_NE(process_, nullptr);
  const auto good = connect_to_etcd({process_->address()}, files("own", "manager", "own"));
  ASSERT_TRUE(good.ok());
  ASSERT_TRUE(soon([&] { return (*good)->list("").ok(); }));
  EXPECT_TRUE((*good)->commit({}, {{"ours", "x", 0}}).ok());
  // In the clear; with a certificate of somebody else; where etcd's is of somebody else.
  EXPECT_EQ(refusal({}), ErrorCode::kLost);
  EXPECT_EQ(refusal(files("other", "manager", "own")), ErrorCode::kLost);
  EXPECT_EQ(refusal(files("own", "manager", "other")), ErrorCode::kLost);
  // A file that is missing is said at once.
  EXPECT_NE(refusal(files("own", "nobody", "own")), ErrorCode::kLost);
  EXPECT_TRUE((*good)->list("theirs")->entries.empty());
  EXPECT_EQ((*good)->list("ours")->entries.size(), 1u);
}

TEST_F(EtcdTlsTest, OneWithTheCertificateOfAnotherAddressIsNotBelieved) {
  process_ = EtcdProcess::start(files("own", "elsewhere", "own"));
  ASSERT_NE(process_, nullptr);
  EXPECT_EQ(refusal(files("own", "manager", "own")), ErrorCode::kLost);
}

TEST(EtcdUrl, NamesMembers) {
  EXPECT_THAT(*parse_etcd_url("etcd:127.0.0.1:2379"), ElementsAre("127.0.0.1:2379"));
  EXPECT_THAT(*parse_etcd_url("etcd:a:1,b:2"), ElementsAre("a:1", "b:2"));
  for (const char* bad : {"", "etcd:", "etcd:a", "etcd:a:1,", "etcd:a:1,,b:2", "sqlite", "a:1"}) {
    EXPECT_FALSE(parse_etcd_url(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace flyt::control
