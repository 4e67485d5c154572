// Pages: what a node manager tells over HTTP.
#pragma once

#include "control/daemon/pages_thread.h"
#include "control/node/manager.h"

namespace flyt::node {

// /metrics and /healthz. The manager outlives it.
control::PageMap pages_of(Manager& manager);

}  // namespace flyt::node
