// A client manager's threads: the desk, and the two that talk to the cluster.
#pragma once

#include "base/result.h"
#include "control/client/config.h"

namespace flyt::vm {

// Serves until `signals`, a descriptor, is readable. Nothing is given back then: programs go on,
// and the next client manager takes over.
Status run_client(const Config& config, int signals);

}  // namespace flyt::vm
