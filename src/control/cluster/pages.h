// Pages: what a cluster manager tells over HTTP.
#pragma once

#include "control/cluster/manager.h"
#include "control/daemon/pages_thread.h"

namespace flyt::cluster {

// /metrics, /healthz and /readyz. The manager outlives it.
control::PageMap pages_of(Manager& manager);

}  // namespace flyt::cluster
