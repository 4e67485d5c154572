#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeCluster;
using testing::FakeNode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Config quick() {
  Config config;
  config.policy = "pack";
  config.scaling_window_seconds = 10;
  config.scaling_cool_down_seconds = 30;
  config.free_unused = false;
  return config;
}

v1::SetVmsRequest range(std::uint32_t least, std::uint32_t most) {
  v1::SetVmsRequest request;
  v1::VmSpec& spec = *request.add_vms();
  spec.set_name("a");
  spec.set_sms_min(least);
  spec.set_sms_max(most);
  request.add_fields("sms_min");
  request.add_fields("sms_max");
  return request;
}

// A VM "a" that has 8 multiprocessors, and may have from 8 to 32.
class ClusterScaling : public ::testing::Test {
 protected:
  ClusterScaling() {
    cluster_.add_vm("a");
    EXPECT_TRUE(cluster_.manager().set_vms(range(8, 32)).ok());
    EXPECT_EQ(cluster_.want("a").sms_granted(), 8u);
  }
  // What of the sort has happened, with its words.
  std::vector<std::string> told(const std::string& front) {
    std::vector<std::string> all;
    for (const auto& event : cluster_.manager().events(0)) {
      if (event.kind().starts_with(front)) all.push_back(event.text());
    }
    return all;
  }
  std::string explained() {
    std::string all;
    const auto explanation = cluster_.manager().explain("a");
    for (const std::string& line : explanation->lines()) all += line + "\n";
    return all;
  }

  FakeCluster cluster_{quick()};
  FakeNode& node_ = cluster_.add_node("n1");
};

TEST_F(ClusterScaling, ABusyVirtualGpuGrowsToItsMostAndAnIdleOneShrinksToItsLeast) {
  node_.busy_percent = 95;
  cluster_.live(29);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), 8u);
  cluster_.live(300);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), 32u);
  EXPECT_THAT(told("gpu-grown"), ElementsAre(HasSubstr("8 -> 16 multiprocessors: busy for 95 %"),
                                             HasSubstr("16 -> 24"), HasSubstr("24 -> 32")));
  EXPECT_THAT(explained(), AllOf(HasSubstr("it has 8 to 32 multiprocessors, by its use"),
                                 HasSubstr("last: 24 -> 32 multiprocessors: busy for 95 %"),
                                 HasSubstr("now: busy for 95 % of 10s; it has its most")));
  node_.busy_percent = 0;
  cluster_.live(300);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), 8u);
  EXPECT_THAT(told("gpu-shrunk"),
              ElementsAre(HasSubstr("32 -> 24"), HasSubstr("24 -> 16"), HasSubstr("16 -> 8")));
  EXPECT_EQ(cluster_.manager().counters().scaled, 6u);
  // What it begins with stays what was asked for.
  EXPECT_EQ(cluster_.manager().vms("a")->vms(0).spec().sms(), 8u);
  EXPECT_EQ(cluster_.audit_quiet(), "");
}

TEST_F(ClusterScaling, WhatUseHasGivenOutlivesTheManager) {
  node_.busy_percent = 95;
  cluster_.live(60);
  const std::uint32_t before = cluster_.gpu("a").sms_granted();
  EXPECT_GT(before, 8u);
  cluster_.start();
  cluster_.live(2);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), before);
  // And a change of its memory.
  v1::ResizeVmRequest request;
  request.set_vm("a");
  request.set_memory_bytes(2ull << 30);
  ASSERT_TRUE(cluster_.manager().resize(request).ok());
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), before);
  EXPECT_EQ(cluster_.gpu("a").memory_bytes(), 2ull << 30);
  EXPECT_EQ(cluster_.manager().vms("a")->vms(0).spec().sms(), 8u);
  EXPECT_EQ(cluster_.audit_quiet(), "");
}

TEST_F(ClusterScaling, WhereThereIsNoRoomItIsSaidAndTriedAgain) {
  cluster_.add_vm("b", 24);
  EXPECT_EQ(cluster_.want("b").sms_granted(), 24u);
  node_.busy_percent = 95;
  cluster_.live(70);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), 8u);
  EXPECT_THAT(
      told("gpu-not-grown"),
      ElementsAre(HasSubstr("not to 16 multiprocessors: busy for 95 %"), HasSubstr("groups")));
  EXPECT_THAT(explained(), HasSubstr("last: not to 16 multiprocessors"));
  ASSERT_TRUE(cluster_.manager().release("b", "done").ok());
  cluster_.live(40);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), 16u);
  EXPECT_EQ(cluster_.audit_quiet(), "");
}

TEST_F(ClusterScaling, ANodeThatDoesNotAnswerLeavesNothingHalfDone) {
  node_.busy_percent = 95;
  node_.answers = false;
  cluster_.live(45);
  node_.answers = true;
  cluster_.live(2);
  // It has done it, or not: its report says so.
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), node_.leases.begin()->second.sms_granted());
  EXPECT_THAT(told("gpu-not-grown"), Not(IsEmpty()));
  EXPECT_EQ(cluster_.audit_quiet(), "");
}

TEST_F(ClusterScaling, ARangeThatIsTakenAwayEndsItAndAnotherOneIsKeptTo) {
  ASSERT_TRUE(cluster_.manager().set_vms(range(0, 0)).ok());
  node_.busy_percent = 95;
  cluster_.live(100);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), 8u);
  EXPECT_THAT(explained(), Not(HasSubstr("by its use")));
  node_.busy_percent = 60;
  v1::SetVmsRequest request = range(16, 32);
  request.mutable_vms(0)->set_sms(16);
  request.add_fields("sms");
  ASSERT_TRUE(cluster_.manager().set_vms(request).ok());
  cluster_.live(40);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), 16u);
  EXPECT_THAT(told("gpu-grown"), ElementsAre(HasSubstr("less than its least")));
}

TEST_F(ClusterScaling, WhatCannotBeConfinedIsLeftAlone) {
  for (auto& [name, lease] : node_.leases) lease.set_confined(false);
  node_.busy_percent = 95;
  cluster_.live(100);
  EXPECT_EQ(cluster_.gpu("a").sms_granted(), 8u);
  EXPECT_THAT(explained(), HasSubstr("does not confine programs"));
}

TEST_F(ClusterScaling, ShowsHowBusyAVmIs) {
  EXPECT_FALSE(cluster_.manager().vms("a")->vms(0).has_busy_percent());
  node_.busy_percent = 55;
  cluster_.live(15);
  EXPECT_EQ(cluster_.manager().vms("a")->vms(0).busy_percent(), 55u);
  EXPECT_EQ(cluster_.manager().vms("a")->vms(0).queued_percent(), 0u);
}

TEST_F(ClusterScaling, RangesThatCannotBeAreRefused) {
  for (const auto& [least, most] : {std::pair(9u, 32u), std::pair(0u, 32u), std::pair(1u, 7u),
                                    std::pair(8u, 4097u), std::pair(8u, 0u)}) {
    EXPECT_EQ(cluster_.manager().set_vms(range(least, most)).error().code, ErrorCode::kInvalid);
  }
  v1::ResizeVmRequest request;
  request.set_vm("a");
  request.set_sms(40);
  EXPECT_EQ(cluster_.manager().resize(request).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(cluster_.manager().vms("a")->vms(0).spec().sms_max(), 32u);
}

TEST_F(ClusterScaling, AReportOfUseThatCannotBeIsRefused) {
  v1::NodeReport report = node_.report();
  const auto refused = [&](std::uint64_t measured, std::uint64_t busy, std::uint64_t queued) {
    v1::NodeReport bad = report;
    node::v1::Lease& lease = *bad.mutable_leases(0);
    lease.set_measured_microseconds(measured);
    lease.set_busy_microseconds(busy);
    lease.set_queued_microseconds(queued);
    const auto answer = cluster_.manager().report(bad);
    return !answer && answer.error().code == ErrorCode::kInvalid;
  };
  EXPECT_FALSE(refused(1000, 1000, 1000));
  EXPECT_TRUE(refused(UINT64_MAX, 0, 0));
  EXPECT_TRUE(refused(1000, UINT64_MAX, 0));
  EXPECT_TRUE(refused(1000, 1000, 1001));
}

}  // namespace
}  // namespace flyt::cluster
