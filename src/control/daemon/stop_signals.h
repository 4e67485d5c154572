// The signals that end a daemon.
#pragma once

#include "base/fd.h"

namespace flyt::control {

// A descriptor that is readable once SIGTERM or SIGINT has come. Blocks both, and makes broken
// pipes and limits on files errors of the write. Threads inherit that: before any is made.
Fd take_stop_signals();

// Waits for one.
void await_stop(const Fd& signals);

}  // namespace flyt::control
