// What a cluster manager tells: of names that mean nothing, and of what has just been changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/cluster/manager.h"
#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using testing::FakeCluster;
using ::testing::HasSubstr;

// Whoever waits until a node is empty shall not take another name for that.
TEST(Manager, OfANodeThatThereIsNotTellsThat) {
  FakeCluster cluster;
  cluster.add_node("n1");
  cluster.report();
  Manager& manager = cluster.manager();
  EXPECT_EQ(manager.leases("", "n1")->leases_size(), 0);
  EXPECT_EQ(manager.sessions("", "n1")->sessions_size(), 0);
  for (const Error& error :
       {manager.leases("", "n2").error(), manager.sessions("", "n2").error()}) {
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    EXPECT_THAT(error.message, HasSubstr("there is no node n2"));
  }
}

TEST(Manager, AReportThatWasOnItsWayUndoesNoResize) {
  FakeCluster cluster;
  FakeNode& node = cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  const v1::NodeReport late = node.report();
  v1::ResizeVmRequest request;
  request.set_vm("a");
  request.set_sms(24);
  ASSERT_TRUE(cluster.manager().resize(request).ok());
  ASSERT_TRUE(cluster.manager().report(late).ok());
  EXPECT_EQ(cluster.gpu("a").sms_granted(), 24u);
  ASSERT_TRUE(cluster.manager().report(node.report()).ok());
  EXPECT_EQ(cluster.gpu("a").sms_granted(), 24u);
  // Who resizes it on its node is believed.
  ASSERT_TRUE(cluster.manager().report(late).ok());
  EXPECT_EQ(cluster.gpu("a").sms_granted(), 8u);
}

}  // namespace
}  // namespace flyt::cluster
