#include "control/cli/cluster/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flyt::cli {
namespace {

namespace v1 = cluster::v1;
using ::testing::HasSubstr;

v1::ListVmsResponse two_vms() {
  v1::ListVmsResponse vms;
  v1::Vm& ready = *vms.add_vms();
  ready.mutable_spec()->set_name("train");
  ready.mutable_spec()->set_address("10.0.0.7");
  ready.mutable_spec()->set_sms(30);
  ready.mutable_spec()->set_memory_bytes(1ull << 30);
  ready.mutable_gpu()->set_phase(v1::PHASE_READY);
  ready.mutable_gpu()->set_node("gpu-1");
  ready.mutable_gpu()->set_gpu(1);
  ready.mutable_gpu()->set_sms_granted(32);
  ready.mutable_gpu()->set_memory_bytes(1ull << 30);
  v1::Vm& waits = *vms.add_vms();
  waits.mutable_spec()->set_name("later");
  waits.mutable_spec()->set_sms(8);
  waits.mutable_spec()->set_memory_bytes(256ull << 20);
  waits.mutable_gpu()->set_phase(v1::PHASE_WAITING);
  waits.mutable_gpu()->set_ahead(2);
  return vms;
}

TEST(ClusterTables, VmsSayWhereTheyAreOrHowManyAreBeforeThem) {
  const std::string text = vms_table(two_vms());
  EXPECT_THAT(text, HasSubstr("train"));
  EXPECT_THAT(text, HasSubstr("gpu-1"));
  EXPECT_THAT(text, HasSubstr("waiting, 2 ahead"));
}

TEST(ClusterTables, FlytsColumnsAreInMegabytesAndByAddress) {
  const std::string text = flyt_vms_table(two_vms());
  EXPECT_THAT(text, HasSubstr("VM IP"));
  EXPECT_THAT(text, ::testing::ContainsRegex("10.0.0.7 +gpu-1/1 +32 +1024 +true"));
  EXPECT_THAT(text, ::testing::ContainsRegex("later +- +8 +256 +false"));
}

TEST(ClusterTables, GroupsAreLettersAndNamesHarmless) {
  v1::ListNodesResponse nodes;
  v1::Node& node = *nodes.add_nodes();
  node.set_name("gpu\x1b[2J");
  node.set_state(v1::NODE_LOST);
  node::v1::Gpu& gpu = *node.mutable_description()->add_gpus();
  for (const char* lease : {"x", "", "y", "x"}) {
    gpu.add_groups()->set_lease_id(lease);
  }
  const std::string text = gpus_table(nodes);
  EXPECT_THAT(text, HasSubstr("A.BA"));
  EXPECT_THAT(text, HasSubstr("lost"));
  EXPECT_THAT(text, HasSubstr("gpu?[2J"));
}

TEST(ClusterTables, AGpuThatHasFailedIsNotReady) {
  v1::ListNodesResponse nodes;
  v1::Node& node = *nodes.add_nodes();
  node.set_name("gpu-1");
  node.set_state(v1::NODE_READY);
  node.mutable_description()->add_gpus()->set_failed("Xid 79");
  node.mutable_description()->add_gpus()->set_index(1);
  EXPECT_THAT(gpus_table(nodes), ::testing::ContainsRegex("gpu-1 +0 .* failed\n"));
  EXPECT_THAT(gpus_table(nodes), ::testing::ContainsRegex("gpu-1 +1 .* ready\n"));
}

TEST(ClusterTables, TellOfALastGroupOfAnotherSize) {
  v1::ListNodesResponse nodes;
  v1::Node& node = *nodes.add_nodes();
  node.set_name("gpu-1");
  node::v1::Gpu& gpu = *node.mutable_description()->add_gpus();
  gpu.set_index(3);
  gpu.set_rest_is_group(true);
  for (int i = 0; i < 2; ++i) gpu.add_groups()->set_sms(8);
  EXPECT_THAT(gpus_table(nodes), ::testing::Not(HasSubstr("last group")));
  gpu.add_groups()->set_sms(12);
  EXPECT_THAT(gpus_table(nodes),
              HasSubstr("\ngpu-1, GPU 3: its last group has 12 multiprocessors, the others 8;"
                        " it is leased with others\n"));
}

TEST(ClusterTables, AnEventIsOneLine) {
  v1::ClusterEvent event;
  event.set_number(7);
  event.set_kind("node-lost");
  event.set_node("gpu-1");
  event.set_text("no\nreport");
  EXPECT_EQ(line_of(event), "1970-01-01T00:00:00Z  7  node-lost  gpu-1  -  no?report\n");
}

}  // namespace
}  // namespace flyt::cli
