// Reading: what a recording holds, of a process that has ended, was killed or still runs.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "trace/recording.h"

namespace flyt::trace {

struct CallRow {
  std::string name;
  bool sync_point = false;
  CallCounters counters;
};

struct CommandRow {
  std::string name;
  CommandCounters counters;
};

struct Process {
  std::uint32_t process = 0;
  std::string program;
  std::uint64_t started_ns = 0;
  std::uint64_t ended_ns = 0;
  std::uint64_t events_dropped = 0;
  std::vector<CallRow> calls;        // Every call, used or not.
  std::vector<CommandRow> commands;  // By op.
  std::vector<Event> events;         // Whole ones only; each names one of `calls`.
};

// A file is checked before it is believed: kInvalid says what is wrong with it. Text is cut to
// printable ASCII.
Result<Process> parse(Bytes file);
Result<Process> read_recording(const std::string& path);

}  // namespace flyt::trace
