// Survey: what a server finds out about its GPUs when it starts.
#pragma once

#include "base/result.h"
#include "server/lease/lease.h"
#include "server/nvml/fleet.h"
#include "server/session_process.h"

namespace flyt::server {

// All GPUs of the driver, or the one of the lease. An error where the lease wants what there is
// not. In a process that ends then: it may make contexts.
Result<nvml::Fleet> survey(const ReadyDriver& driver, const LeaseOptions& lease);

// From now on drivers that start in this process and its children have the fleet's GPU alone.
void show_only(const nvml::Fleet& fleet);

}  // namespace flyt::server
