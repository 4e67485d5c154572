#include <gtest/gtest.h>

#include "control/cluster/manager.h"
#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using testing::FakeCluster;
using testing::FakeNode;

TEST(ClusterManagerGroups, GivesTwoHalvesOfAGpuWithALargerLastGroup) {
  FakeCluster cluster(Config{});
  FakeNode& node = cluster.add_node("n1");
  node.groups = 15;
  node.rest = 12;
  cluster.report();
  cluster.add_vm("a", 64);
  cluster.add_vm("b", 64);
  EXPECT_EQ(cluster.want("a").sms_granted(), 64u);
  EXPECT_EQ(cluster.want("b").sms_granted(), 68u);
  // Another manager goes on with what the store and the node say.
  cluster.start();
  cluster.live(2);
  cluster.add_vm("c", 8);
  EXPECT_EQ(cluster.want("c").phase(), v1::PHASE_WAITING);
  v1::ResizeVmRequest request;
  request.set_vm("b");
  request.set_sms(56);
  ASSERT_TRUE(cluster.manager().resize(request).ok());
  EXPECT_EQ(cluster.gpu("b").sms_granted(), 56u);
  // What is left over goes with another group only.
  cluster.live(2);
  EXPECT_EQ(cluster.gpu("c").phase(), v1::PHASE_WAITING);
  request.set_sms(60);
  ASSERT_TRUE(cluster.manager().resize(request).ok());
  EXPECT_EQ(cluster.gpu("b").sms_granted(), 60u) << "six groups, and the last one";
  cluster.live(2);
  EXPECT_EQ(cluster.gpu("c").phase(), v1::PHASE_READY);
  EXPECT_EQ(cluster.gpu("c").sms_granted(), 8u);
  EXPECT_EQ(cluster.audit_quiet(), "");
}

}  // namespace
}  // namespace flyt::cluster
