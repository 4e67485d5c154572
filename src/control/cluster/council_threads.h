// A cluster manager that is one of several, with all its threads.
#pragma once

#include <string_view>

#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"
#include "control/cluster/config.h"
#include "control/cluster/gate.h"

namespace flyt::cluster {

// Serves until `signals` can be read, with or without etcd. An error only if it cannot start.
Status run_council(const Config& config, std::string_view version, const Fd& signals, Gate& gate,
                   const Log& log);

}  // namespace flyt::cluster
