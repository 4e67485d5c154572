#include "control/cluster/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flyt::cluster {
namespace {

TEST(ClusterMetrics, TellNodesVmsAndCounts) {
  v1::ClusterDescription cluster;
  cluster.set_waiting(3);
  v1::ListNodesResponse nodes;
  nodes.add_nodes()->set_name("a\"b\n");
  nodes.mutable_nodes(0)->set_state(v1::NODE_LOST);
  v1::ListVmsResponse vms;
  v1::Vm& vm = *vms.add_vms();
  vm.mutable_spec()->set_name("vm");
  vm.mutable_gpu()->set_phase(v1::PHASE_READY);
  vm.mutable_gpu()->set_sms_granted(16);
  vm.set_busy_percent(42);
  vms.add_vms()->mutable_gpu()->set_phase(v1::PHASE_NONE);
  const std::string text = metrics_text(cluster, nodes, vms, {.placed = 7}, true);
  EXPECT_THAT(text, ::testing::HasSubstr("flyt_cluster_waiting 3\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("flyt_cluster_node_up{node=\"a\\\"b?\"} 0\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("flyt_cluster_vm_sms{vm=\"vm\",node=\"\"} 16\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("flyt_cluster_vm_busy_percent{vm=\"vm\",node=\"\"} 42\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("flyt_cluster_placed_total 7\n"));
}

}  // namespace
}  // namespace flyt::cluster
