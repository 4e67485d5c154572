// The signals that end a daemon.
#pragma once

#include <cstdint>
#include <functional>

#include "base/fd.h"

namespace flyt::control {

// Whether SIGHUP is told, too, instead of ending the daemon.
enum class Hangups : std::uint8_t { kEnd, kTold };

// A descriptor that is readable once SIGTERM or SIGINT has come. Blocks both, and makes broken
// pipes and limits on files errors of the write. Threads inherit that: before any is made.
Fd take_stop_signals(Hangups hangups = Hangups::kEnd);

// Waits for one; `on_hangup` is called for each SIGHUP before.
void await_stop(
    const Fd& signals, const std::function<void()>& on_hangup = [] {});

}  // namespace flyt::control
