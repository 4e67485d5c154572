// ChromeTrace: recorded calls as a trace-event file, which Perfetto and chrome://tracing show.
#pragma once

#include <ostream>
#include <span>

#include "trace/reading.h"

namespace flyt::cli {

// What one kept call takes at the most, with its arrow; a file is no larger than its calls and
// threads times this.
inline constexpr std::uint64_t kChromeEventBytesMax = 832;

// A process of its own for each recorded one, a track for each of its threads, a slice for each
// call. Arrows lead from the calls that sent commands to the synchronisation that waited for them.
void write_chrome_trace(std::span<const trace::Process> processes, std::ostream& out);

}  // namespace flyt::cli
