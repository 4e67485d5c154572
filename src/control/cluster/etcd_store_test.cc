// Elections and fences: whoever has been overtaken cannot write, whatever was on its way.
#include "control/cluster/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/cluster/candidate.h"
#include "control/cluster/testing/fake_cluster.h"
#include "control/etcd/testing/fake_etcd.h"

namespace flyt::cluster {
namespace {

using control::testing::FakeEtcd;
using control::testing::FakeLink;
using testing::FakeClock;
using ::testing::HasSubstr;

constexpr Duration kStep = std::chrono::milliseconds(250);

// One of two managers.
struct Side {
  Side(FakeEtcd& etcd, const Clock& clock, const std::string& name)
      : link(etcd), candidate(link, clock, {"/t/", 2, self(name)}) {}
  static state::Leader self(const std::string& name) {
    state::Leader leader;
    leader.set_name(name);
    leader.set_address(name + ":1");
    return leader;
  }
  bool decides() const { return candidate.tenure() && candidate.tenure()->holds(); }
  EtcdStore store() { return {link, "/t/", candidate.tenure()}; }

  FakeLink link;
  Candidate candidate;
};

class EtcdStoreTest : public ::testing::Test {
 protected:
  void pass(Duration time, bool with_a = true, bool with_b = true) {
    for (Duration passed{0}; passed < time; passed += kStep) {
      clock_.pass(kStep);
      if (with_a) a_.candidate.step();
      if (with_b) b_.candidate.step();
      EXPECT_FALSE(a_.decides() && b_.decides());
    }
  }
  static Result<std::uint64_t> put(Store& store, const std::string& key, const std::string& value) {
    const std::vector<StoreChange> changes = {{key, value}};
    return store.commit({}, changes);
  }
  static std::vector<StoreChange> many(const std::string& value) {
    std::vector<StoreChange> changes;
    for (int i = 0; i < 500; ++i) changes.push_back({"many/" + std::to_string(i), value});
    return changes;
  }

  FakeClock clock_;
  FakeEtcd etcd_{clock_};
  Side a_{etcd_, clock_, "a"};
  Side b_{etcd_, clock_, "b"};
};

TEST_F(EtcdStoreTest, OneDecidesAndTheOtherKnowsWho) {
  a_.candidate.step();
  b_.candidate.step();
  EXPECT_TRUE(a_.decides());
  EXPECT_FALSE(b_.decides());
  ASSERT_TRUE(b_.candidate.leader().has_value());
  EXPECT_EQ(b_.candidate.leader()->address(), "a:1");
  pass(std::chrono::seconds(60));
  EXPECT_TRUE(a_.decides());
}

TEST_F(EtcdStoreTest, WhoResignsIsFollowedAtOnceAndWhoDiesWithinThreeSeconds) {
  a_.candidate.step();
  a_.candidate.resign("stops");
  b_.candidate.step();
  EXPECT_TRUE(b_.decides());
  // It never steps again.
  pass(std::chrono::milliseconds(2500), true, false);
  EXPECT_TRUE(a_.decides());
}

TEST_F(EtcdStoreTest, WhoIsCutOffKnowsBeforeAnotherDecides) {
  a_.candidate.step();
  auto store = a_.store();
  a_.link.cut = true;
  pass(std::chrono::seconds(4));
  EXPECT_FALSE(a_.decides());
  EXPECT_TRUE(b_.decides());
  EXPECT_FALSE(store.mine());
  EXPECT_EQ(put(store, "x", "1").error().code, ErrorCode::kLost);
  a_.link.cut = false;
  pass(std::chrono::seconds(1));
  EXPECT_EQ(put(store, "x", "1").error().code, ErrorCode::kLost);
  EXPECT_EQ(a_.candidate.leader()->name(), "b");
}

TEST_F(EtcdStoreTest, WhoSleptThroughItsEndCannotWrite) {
  a_.candidate.step();
  auto store = a_.store();
  ASSERT_TRUE(put(store, "x", "1").ok());
  // As if its clock had stood still: it believes that it decides.
  a_.candidate.tenure()->extend(clock_.now() + Duration(std::chrono::hours(1)));
  clock_.pass(std::chrono::seconds(4));
  b_.candidate.step();
  ASSERT_TRUE(b_.decides());
  EXPECT_EQ(put(store, "x", "2").error().code, ErrorCode::kLost);
  EXPECT_FALSE(store.mine());
  EXPECT_THAT(a_.candidate.tenure()->why(), HasSubstr("another cluster manager"));
  auto other = b_.store();
  EXPECT_EQ((*other.list("x"))[0].value, "1");
}

TEST_F(EtcdStoreTest, WhatNobodyKnowsAboutEndsTheTenure) {
  a_.candidate.step();
  auto store = a_.store();
  a_.link.deaf = true;
  EXPECT_EQ(put(store, "x", "1").error().code, ErrorCode::kLost);
  a_.link.deaf = false;
  EXPECT_FALSE(store.mine());
  EXPECT_EQ(put(store, "x", "2").error().code, ErrorCode::kLost);
  // It is elected anew, at once, and sees what was done.
  pass(kStep);
  ASSERT_TRUE(a_.decides());
  EXPECT_EQ((*a_.store().list("x"))[0].value, "1");
}

TEST_F(EtcdStoreTest, WhatArrivesLateIsRefused) {
  a_.candidate.step();
  auto store = a_.store();
  a_.link.slow = true;
  EXPECT_EQ(put(store, "x", "1").error().code, ErrorCode::kLost);
  a_.link.slow = false;
  pass(std::chrono::seconds(1));
  const bool again = a_.decides();
  auto next = again ? a_.store() : b_.store();
  ASSERT_TRUE(put(next, "y", "2").ok());
  a_.link.deliver();
  EXPECT_TRUE(next.list("x")->empty());
  EXPECT_TRUE(put(next, "y", "3").ok());
}

TEST_F(EtcdStoreTest, AFullEtcdRefusesAndTheTenureGoesOn) {
  a_.candidate.step();
  auto store = a_.store();
  etcd_.full = true;
  EXPECT_EQ(put(store, "x", "1").error().code, ErrorCode::kLimit);
  const auto changes = many("1");
  EXPECT_FALSE(store.commit({}, changes).ok());
  EXPECT_TRUE(store.mine());
  etcd_.full = false;
  EXPECT_TRUE(put(store, "x", "1").ok());
  EXPECT_TRUE(store.list("many/")->empty());
}

TEST_F(EtcdStoreTest, ALargeCommitIsAllOrNothingWhereverItsWriterDies) {
  std::size_t whole = 0;
  for (int steps = 1; steps < 40; ++steps) {
    SCOPED_TRACE(steps);
    FakeEtcd etcd(clock_);
    Side writer(etcd, clock_, "w");
    Side next(etcd, clock_, "n");
    writer.candidate.step();
    auto store = writer.store();
    const auto before = many("before");
    ASSERT_TRUE(store.commit({}, before).ok());
    int left = steps;
    writer.link.alive = [&left] { return left-- > 0; };
    const auto after = many("after");
    const auto done = store.commit({}, after);
    for (int i = 0; i < 12; ++i) {
      clock_.pass(kStep);
      next.candidate.step();
    }
    ASSERT_TRUE(next.decides());
    auto seen = next.store();
    ASSERT_TRUE(seen.open().ok());
    const auto entries = seen.list("many/");
    ASSERT_EQ(entries->size(), 500u);
    for (const StoreEntry& entry : *entries) EXPECT_EQ(entry.value, (*entries)[0].value);
    EXPECT_TRUE(!done.ok() || (*entries)[0].value == "after");
    whole += (*entries)[0].value == "after";
    // Nothing is left of it, and all of it can be changed.
    ASSERT_TRUE(seen.open().ok());
    for (const auto& [key, entry] : etcd.entries()) EXPECT_THAT(key, Not(HasSubstr("journal")));
    EXPECT_TRUE(seen.commit({}, before).ok());
  }
  EXPECT_GT(whole, 0u);
  EXPECT_LT(whole, 39u);
}

TEST_F(EtcdStoreTest, WhoComesBackToItsAddressNeedNotWaitForItself) {
  a_.candidate.step();
  Side again(etcd_, clock_, "a");
  again.candidate.step();
  EXPECT_TRUE(again.decides());
  auto old = a_.store();
  EXPECT_EQ(put(old, "x", "1").error().code, ErrorCode::kLost);
}

TEST_F(EtcdStoreTest, AnEtcdThatIsAwayForAWhileChangesNothing) {
  a_.candidate.step();
  a_.link.cut = b_.link.cut = true;
  pass(std::chrono::seconds(1));
  EXPECT_THAT(a_.candidate.problem(), HasSubstr("does not answer"));
  a_.link.cut = b_.link.cut = false;
  pass(std::chrono::seconds(1));
  EXPECT_TRUE(a_.decides());
  EXPECT_EQ(a_.candidate.problem(), "");
}

}  // namespace
}  // namespace flyt::cluster
