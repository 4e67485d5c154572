#include "control/node/metrics.h"

#include <gtest/gtest.h>

namespace flyt::node {
namespace {

TEST(Metrics, TellGpusLeasesAndCounters) {
  NodeView node{.draining = true, .leases = 1};
  GpuView gpu{.gpu = {.index = 3, .uuid = "GPU-3", .groups = {8, 8, 4}}};
  gpu.holder_counts = {1, 0, 1};
  gpu.quota_bytes = 100;
  node.gpus.push_back(gpu);
  LeaseView lease{.lease = {.id = "id", .name = "a\"b"}, .use = LeaseUse{50, 2}};
  lease.lease.state = LeaseState::kRunning;
  lease.use->work.busy = std::chrono::milliseconds(12);
  SessionView session{.lease_id = "id"};
  session.session.launches = 7;
  const std::string text = metrics_text(node, {lease}, {session, session}, {.created = 9}, false);
  for (const char* line :
       {"flyt_node_healthy 0\n", "flyt_node_draining 1\n",
        "flyt_gpu_sms{gpu=\"3\",uuid=\"GPU-3\"} 20\n",
        "flyt_gpu_sms_leased{gpu=\"3\",uuid=\"GPU-3\"} 12\n",
        "flyt_lease_up{lease=\"id\",name=\"a\\\"b\",gpu=\"0\"} 1\n",
        "flyt_lease_memory_used_bytes{lease=\"id\",name=\"a\\\"b\",gpu=\"0\"} 50\n",
        "flyt_lease_busy_microseconds_total{lease=\"id\",name=\"a\\\"b\",gpu=\"0\"} 12000\n",
        "flyt_lease_launches{lease=\"id\",name=\"a\\\"b\",gpu=\"0\"} 14\n",
        "# TYPE flyt_node_leases_created_total counter\nflyt_node_leases_created_total 9\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "not in\n" << text;
  }
}

}  // namespace
}  // namespace flyt::node
