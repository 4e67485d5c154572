// Metrics: what a cluster manager knows, as Prometheus reads it.
#pragma once

#include <string>

#include "control/cluster/manager.h"

namespace flyt::cluster {

// Text exposition format 0.0.4.
std::string metrics_text(const v1::ClusterDescription& cluster, const v1::ListNodesResponse& nodes,
                         const v1::ListVmsResponse& vms, const ClusterCounters& counters,
                         bool healthy);

}  // namespace flyt::cluster
