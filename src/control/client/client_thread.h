// A client manager's threads: the desk, and the two that talk to the cluster.
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "control/client/config.h"

namespace flyt::vm {

// Serves until a signal comes: take_stop_signals(). Nothing is given back then: programs go on,
// and the next client manager takes over.
Status run_client(const Config& config, const Fd& signals);

}  // namespace flyt::vm
