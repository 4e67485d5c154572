// Pages: what a cluster manager tells over HTTP.
#pragma once

#include "control/cluster/council.h"
#include "control/daemon/pages_thread.h"

namespace flyt::cluster {

// The same of a manager that is one of several.
control::PageMap pages_of(Chair& chair);

// /metrics, /healthz and /readyz. The manager outlives it.
control::PageMap pages_of(Manager& manager);

}  // namespace flyt::cluster
