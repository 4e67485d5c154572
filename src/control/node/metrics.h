// Metrics: what a manager knows, as Prometheus reads it.
#pragma once

#include <string>
#include <vector>

#include "control/node/manager.h"

namespace flyt::node {

// Text exposition format 0.0.4.
std::string metrics_text(const NodeView& node, const std::vector<LeaseView>& leases,
                         const std::vector<SessionView>& sessions, const Counters& counters,
                         bool healthy);

}  // namespace flyt::node
