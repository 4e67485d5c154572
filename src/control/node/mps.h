// MpsDaemon: NVIDIA's MPS for one GPU, which lets processes run on it side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "control/node/process.h"

namespace flyt::node {

struct MpsSettings {
  std::string program;      // nvidia-cuda-mps-control
  std::string pipe_folder;  // Its own: other MPS daemons of the machine are not touched.
  std::string log_folder;
  std::string gpu_uuid;
};

// Not thread-safe.
class MpsDaemon {
 public:
  explicit MpsDaemon(MpsSettings settings) : settings_(std::move(settings)) {}

  // The one of an earlier run of this program, if it is still there.
  bool adopt(ProcessId id);
  // kNotFound: there is no such program, with what to do instead. Returns when clients can use it.
  Status start();
  // Its servers end, too, if it ran until now; else they are left to their clients.
  void stop();

  bool running() const { return process_ && !process_->ended(); }
  ProcessId id() const { return process_ ? process_->id() : ProcessId{}; }
  // Readable once it has ended; -1: it does not run.
  int fd() const { return process_ ? process_->fd() : -1; }

 private:
  bool control_is_there() const;
  bool is_server(const ProcessFacts& facts) const;
  // Ends one that does not listen: why, and what to do.
  Status give_up(const ProcessCommand& command);

  MpsSettings settings_;
  std::optional<Process> process_;
};

}  // namespace flyt::node
