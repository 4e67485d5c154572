// A cluster manager with all its threads, for as long as the process is wanted.
#pragma once

#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "control/cluster/config.h"

namespace flyt::cluster {

// Serves until a signal comes: take_stop_signals(). An error only if it cannot start.
Status run_cluster(const Config& config, std::string_view version, const Fd& signals);

}  // namespace flyt::cluster
