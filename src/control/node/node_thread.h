// A node: its manager, the API and the pages, for as long as the process is wanted.
#pragma once

#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "control/node/config.h"

namespace flyt::node {

// Serves until a signal comes: take_stop_signals(). An error only if it cannot start.
Status run_node(const Config& config, std::string_view version, const Fd& signals, bool end_leases);

}  // namespace flyt::node
