#include "control/node/metrics.h"

#include <gtest/gtest.h>

namespace flyt::node {
namespace {

TEST(Metrics, TellGpusLeasesAndCounters) {
  NodeView node{.draining = true, .leases = 1};
  GpuView gpu{.gpu = {.index = 3, .uuid = "GPU-3", .groups = {8, 8, 4}}};
  gpu.holder_counts = {1, 0, 1};
  gpu.quota_bytes = 100;
  gpu.leases = 2;
  gpu.totals.returns = 5;
  gpu.sessions_max = 46;
  gpu.sessions = {.sessions = 2, .ready = 1, .awaited = 4};
  gpu.refused = 6;
  gpu.xids = {{31, 12}, {79, 1}, {kOtherXids, 2}};
  node.gpus.push_back(gpu);
  LeaseView lease{.lease = {.id = "id", .name = "a\"b"}, .use = LeaseUse{50, 2}};
  lease.lease.state = LeaseState::kRunning;
  lease.use->work.busy = std::chrono::milliseconds(12);
  lease.use->faults.survived = 3;
  lease.use->totals.received_bytes = 4096;
  LeaseView other = lease;
  lease.lease.grant.gpu = 3;
  SessionView session{.lease_id = "id"};
  session.session.launches = 7;
  const std::string text =
      metrics_text(node, {lease, other}, {session, session}, {.created = 9}, false);
  for (const char* line :
       {"flyt_node_healthy 0\n", "flyt_node_draining 1\n",
        "flyt_gpu_sms{gpu=\"3\",uuid=\"GPU-3\"} 20\n",
        "flyt_gpu_sms_leased{gpu=\"3\",uuid=\"GPU-3\"} 12\n",
        "flyt_gpu_leases{gpu=\"3\",uuid=\"GPU-3\"} 2\n",
        "flyt_gpu_memory_used_bytes{gpu=\"3\",uuid=\"GPU-3\"} 50\n",
        "flyt_gpu_sessions{gpu=\"3\",uuid=\"GPU-3\"} 2\n",
        "flyt_gpu_sessions_max{gpu=\"3\",uuid=\"GPU-3\"} 46\n",
        "flyt_gpu_sessions_taken{gpu=\"3\",uuid=\"GPU-3\"} 7\n",
        "flyt_gpu_sessions_refused_total{gpu=\"3\",uuid=\"GPU-3\"} 6\n",
        "# TYPE flyt_gpu_xid_total counter\n"
        "flyt_gpu_xid_total{gpu=\"3\",uuid=\"GPU-3\",xid=\"other\"} 2\n"
        "flyt_gpu_xid_total{gpu=\"3\",uuid=\"GPU-3\",xid=\"31\"} 12\n",
        "flyt_gpu_xid_total{gpu=\"3\",uuid=\"GPU-3\",xid=\"79\"} 1\n",
        // Nothing yet of what no program causes.
        "flyt_gpu_xid_total{gpu=\"3\",uuid=\"GPU-3\",xid=\"95\"} 0\n",
        "# TYPE flyt_gpu_recoveries_total counter\n"
        "flyt_gpu_recoveries_total{gpu=\"3\",uuid=\"GPU-3\"} 5\n",
        "flyt_lease_received_bytes_total{lease=\"id\",name=\"a\\\"b\",gpu=\"3\"} 4096\n",
        "flyt_lease_up{lease=\"id\",name=\"a\\\"b\",gpu=\"3\"} 1\n",
        "flyt_lease_memory_used_bytes{lease=\"id\",name=\"a\\\"b\",gpu=\"3\"} 50\n",
        "flyt_lease_busy_microseconds_total{lease=\"id\",name=\"a\\\"b\",gpu=\"3\"} 12000\n",
        "flyt_lease_faults_survived_total{lease=\"id\",name=\"a\\\"b\",gpu=\"3\"} 3\n",
        "flyt_lease_launches{lease=\"id\",name=\"a\\\"b\",gpu=\"3\"} 14\n",
        "# TYPE flyt_node_leases_created_total counter\nflyt_node_leases_created_total 9\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "not in\n" << text;
  }
}

TEST(Metrics, CountForTheGpuWhatItsLeasesAdd) {
  GpuTotals gpu;
  GpuTotals before;
  gpu.add({.launches = 10, .caused = 1}, before, true);
  gpu.add({.launches = 12, .caused = 1}, before, false);
  // Figures that are older than those before.
  gpu.add({.launches = 11}, before, false);
  EXPECT_EQ(gpu.launches, 12U);
  // Another server has them all, and one that began anew has not.
  gpu.add({.launches = 13, .caused = 1}, before, true);
  gpu.add({.launches = 4}, before, true);
  EXPECT_EQ(gpu.launches, 17U);
  EXPECT_EQ(gpu.caused, 1U);
  gpu.add({.launches = 4, .caused = 2}, before, false);
  EXPECT_EQ(gpu.caused, 3U);
}

}  // namespace
}  // namespace flyt::node
