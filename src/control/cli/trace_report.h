// TraceReport: what programs called, by call, as a table or as JSON.
#pragma once

#include <span>
#include <string>

#include "trace/reading.h"

namespace flyt::cli {

// Sums over some calls.
struct TraceTotals {
  std::uint64_t calls = 0;
  std::array<std::uint64_t, 4> kinds{};  // By trace::Kind.
  std::uint64_t failed = 0;
  std::uint64_t unended = 0;    // Begun, and of no kind yet: a thread was in them to the last.
  std::uint64_t own_waits = 0;  // Of calls that a program makes in order to wait.
  std::uint64_t own_wait_ns = 0;
  std::uint64_t our_waits = 0;  // Of all others.
  std::uint64_t our_wait_ns = 0;
  std::uint64_t held_ns = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};
TraceTotals totals_of(const trace::Process& process);

// One table over all processes; with more than one, a line for each before it. Calls by the time
// that they waited, longest first.
std::string trace_table(std::span<const trace::Process> processes);

// One object: {"processes": [...]}, each with its totals, calls and commands.
std::string trace_json(std::span<const trace::Process> processes);

// Text as a JSON string, quotes included.
std::string json_string(std::string_view text);

}  // namespace flyt::cli
