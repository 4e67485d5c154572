// Nodes whose leases programs of other machines cannot reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/cluster/manager.h"
#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::FakeCluster;
using ::testing::HasSubstr;
using ::testing::Not;

v1::GpuRequest request_from(const std::string& vm, const std::string& host) {
  v1::GpuRequest request;
  request.set_vm(vm);
  request.set_host(host);
  return request;
}

std::vector<std::string> event_kinds(FakeCluster& cluster) {
  std::vector<std::string> all;
  for (const auto& event : cluster.manager().events(0)) all.push_back(event.kind());
  return all;
}

TEST(ClusterReach, AVmThatCouldReachNoNodeIsRefusedAtOnceAndGetsNoLease) {
  FakeCluster cluster;
  cluster.add_node("n1").host_only = true;
  cluster.report();
  cluster.add_vm("a");
  for (int i = 0; i < 3; ++i) {
    const auto gpu = cluster.manager().request(request_from("a", ""));
    ASSERT_FALSE(gpu.ok());
    EXPECT_EQ(gpu.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(gpu.error().message,
                AllOf(HasSubstr("node n1"), HasSubstr("leases.tcp_host"), HasSubstr("node.toml"),
                      HasSubstr("vm.host = \"n1-host\""), HasSubstr("client.toml")));
    cluster.live(10);
  }
  EXPECT_TRUE(cluster.nodes.at("n1").leases.empty());
  EXPECT_EQ(cluster.manager().describe().waiting(), 0u);
  EXPECT_THAT(event_kinds(cluster), Not(Contains("gpu-placed")));
  const auto told = cluster.manager().explain("a");
  ASSERT_TRUE(told.ok());
  EXPECT_THAT(told->lines(), Contains("n1: the node's leases have no address for its machine"));
}

TEST(ClusterReach, ProgramsOfTheNodesOwnMachineReachIt) {
  FakeCluster cluster;
  cluster.add_node("n1").host_only = true;
  cluster.report();
  cluster.add_vm("a");
  EXPECT_TRUE(cluster.manager().request(request_from("a", "n1-host")).ok());
  cluster.work();
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
}

TEST(ClusterReach, WhoDoesNotTellHisMachineIsNotJudged) {
  FakeCluster cluster;
  cluster.add_node("n1").host_only = true;
  cluster.report();
  cluster.add_vm("a");
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_READY);
}

TEST(ClusterReach, ANodeWithAnAddressIsTakenAndWaitedFor) {
  FakeCluster cluster;
  cluster.add_node("n1").host_only = true;
  cluster.add_node("n2").groups = 1;
  cluster.report();
  cluster.add_vm("a");
  cluster.add_vm("b");
  EXPECT_TRUE(cluster.manager().request(request_from("a", "")).ok());
  cluster.work();
  EXPECT_EQ(cluster.gpu("a").node(), "n2");
  // There n1 has room; but b could never use that.
  const auto waits = cluster.manager().request(request_from("b", "elsewhere"));
  ASSERT_TRUE(waits.ok()) << waits.error().message;
  EXPECT_EQ(waits->phase(), v1::PHASE_WAITING);
  EXPECT_EQ(waits->reason(), "no GPU has room for it");
  // Nor after another manager has read who waits.
  cluster.start();
  cluster.live(3);
  EXPECT_EQ(cluster.gpu("b").phase(), v1::PHASE_WAITING);
  ASSERT_TRUE(cluster.manager().release("a", "").ok());
  cluster.live(3);
  EXPECT_EQ(cluster.gpu("b").node(), "n2");
}

TEST(ClusterReach, ANodeThatGetsAnAddressIsTaken) {
  FakeCluster cluster;
  cluster.add_node("n1").host_only = true;
  cluster.report();
  cluster.add_vm("a");
  EXPECT_FALSE(cluster.manager().request(request_from("a", "")).ok());
  cluster.nodes.at("n1").host_only = false;
  cluster.report();
  EXPECT_TRUE(cluster.manager().request(request_from("a", "")).ok());
  cluster.work();
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  // What is there stays.
  EXPECT_TRUE(cluster.manager().request(request_from("a", "elsewhere")).ok());
}

TEST(ClusterReach, WhoWaitsForNodesThatHeCannotReachAnyMoreIsRefused) {
  for (const bool removed : {false, true}) {
    FakeCluster cluster;
    cluster.add_node("n1").groups = 1;
    cluster.add_node("n2").host_only = true;
    cluster.report();
    cluster.add_vm("a");
    cluster.add_vm("b");
    EXPECT_TRUE(cluster.manager().request(request_from("a", "")).ok());
    EXPECT_EQ(cluster.manager().request(request_from("b", ""))->phase(), v1::PHASE_WAITING);
    cluster.work();
    if (removed) {
      cluster.nodes.at("n1").up = false;
      cluster.live(15);
      ASSERT_TRUE(cluster.manager().remove_node("n1").ok());
    } else {
      cluster.nodes.at("n1").host_only = true;
      cluster.report();
    }
    EXPECT_EQ(cluster.gpu("b").phase(), v1::PHASE_NONE) << removed;
    EXPECT_THAT(event_kinds(cluster), Contains("wish-dropped"));
    EXPECT_EQ(cluster.manager().request(request_from("b", "")).error().code,
              ErrorCode::kUnsupported);
  }
}

TEST(ClusterReach, AMachineThatCannotBeShownIsRefused) {
  FakeCluster cluster;
  cluster.add_node("n1");
  cluster.add_vm("a");
  EXPECT_EQ(cluster.manager().request(request_from("a", "a\nb")).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(cluster.manager().request(request_from("a", std::string(257, 'a'))).error().code,
            ErrorCode::kInvalid);
}

}  // namespace
}  // namespace flyt::cluster
