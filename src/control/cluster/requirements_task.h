// What has to be done beside a manager that decides, as its configuration says.
#pragma once

#include "base/log.h"
#include "base/result.h"
#include "control/cluster/config.h"
#include "control/cluster/workers.h"

namespace flyt::cluster {

// Reading VMs' requirements, if they come from a database. kInvalid, kUnsupported: they cannot.
Result<Workers::Tasks> tasks_of(const Config& config, const Log& log);

}  // namespace flyt::cluster
