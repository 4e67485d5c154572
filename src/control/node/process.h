// Process: a server of a lease, or an MPS daemon: started, found again, watched and ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "control/node/lease.h"

namespace flyt::node {

struct ProcessCommand {
  std::vector<std::string> words;                            // Program and arguments.
  std::vector<std::pair<std::string, std::string>> changes;  // Of the environment.
  std::string log;                                           // A file for what it says.
  // The child's descriptor 3; it writes "ready\n" there when it is.
  bool tells_ready = false;
};

// A process in a session and process group of its own, which outlives this one. It may be a child
// or not. Not thread-safe.
class Process {
 public:
  // An error: it did not start, or was not ready by the deadline; then it is ended.
  static Result<Process> start(const ProcessCommand& command, Instant deadline);
  // One that runs already; none if it does not, or is another one by now.
  static std::optional<Process> adopt(ProcessId id);

  Process(Process&&) = default;
  Process& operator=(Process&&) = default;

  const ProcessId& id() const { return id_; }
  // Readable once the process has ended.
  int fd() const { return handle_.get(); }
  bool ended() const;
  bool wait_until(Instant deadline) const;
  void signal(int number) const;
  // The signal, then, at the deadline, SIGKILL for its whole group. Returns when the process is
  // gone: how it ended, as collect() says.
  std::string end(int first_signal, Duration grace);
  // How it ended, for people: "exit status 1", "signal 9"; of one that was adopted nobody knows.
  std::string collect();

 private:
  Process(ProcessId id, Fd handle, bool child)
      : id_(id), handle_(std::move(handle)), child_(child) {}
  void kill_group() const;

  ProcessId id_;
  Fd handle_;
  bool child_;
};

// Of all processes of this user: what /proc tells.
struct ProcessFacts {
  ProcessId id;
  std::string name;  // What it calls itself.
  std::int32_t group = 0;
  std::vector<std::string> words;
};
std::vector<ProcessFacts> list_processes();
std::optional<ProcessFacts> facts_of(std::int32_t pid);

// Whether a process was started with "NAME=VALUE" in its environment; false if nobody may know.
bool has_variable(std::int32_t pid, const std::string& variable);

// The file that a process runs; empty if nobody may know.
std::string program_of(std::int32_t pid);

// The last two lines of a file, at most `bytes`, as one.
std::string tail_of(const std::string& path, std::size_t bytes);

}  // namespace flyt::node
