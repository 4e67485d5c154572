#include "control/node/mps.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "control/node/server_files.h"

namespace flyt::node {
namespace {

constexpr unsigned kStartSeconds = 10;
constexpr Duration kStartTime = std::chrono::seconds(kStartSeconds);
constexpr std::size_t kTailBytes = 500;
constexpr Duration kStopTime = std::chrono::seconds(5);
constexpr Duration kStartStep = std::chrono::milliseconds(10);
// As much as the system keeps of "nvidia-cuda-mps-server".
constexpr const char* kServerName = "nvidia-cuda-mps";
constexpr const char* kAdvice =
    ": mode \"shared\" needs NVIDIA's MPS; install it, set gpus.mps_control to where it is, or set"
    " gpus.mode = \"isolated\"";

}  // namespace

// The daemon makes this once it listens.
bool MpsDaemon::control_is_there() const {
  return ::access((settings_.pipe_folder + "/control").c_str(), F_OK) == 0;
}

bool MpsDaemon::adopt(ProcessId id) {
  process_ = Process::adopt(id);
  const auto facts = facts_of(id.pid);
  const bool ours =
      process_ && facts && !facts->words.empty() &&
      std::find(facts->words.begin(), facts->words.end(), settings_.program) != facts->words.end();
  if (!ours) process_.reset();
  return ours;
}

Status MpsDaemon::start() {
  for (const std::string& folder : {settings_.pipe_folder, settings_.log_folder}) {
    if (Status status = make_private_folder(folder); !status) return status;
  }
  // A left-over would look like a daemon that is ready.
  ::unlink((settings_.pipe_folder + "/control").c_str());
  ProcessCommand command;
  command.words = {settings_.program, "-f"};
  command.changes = {{"CUDA_MPS_PIPE_DIRECTORY", settings_.pipe_folder},
                     {"CUDA_MPS_LOG_DIRECTORY", settings_.log_folder},
                     {"CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "1"},
                     {"CUDA_VISIBLE_DEVICES", settings_.gpu_uuid}};
  command.log = settings_.log_folder + "/daemon.log";
  const Instant deadline = system_clock().now() + kStartTime;
  auto process = Process::start(command, deadline);
  if (!process) {
    return Error{ErrorCode::kNotFound, process.error().message + kAdvice};
  }
  process_.emplace(std::move(*process));
  while (!control_is_there()) {
    if (process_->ended() || system_clock().now() >= deadline) return give_up(command);
    system_clock().sleep_for(kStartStep);
  }
  return {};
}

Status MpsDaemon::give_up(const ProcessCommand& command) {
  const bool ended = process_->ended();
  const std::string how = process_->end(SIGTERM, kStopTime);
  process_.reset();
  std::string why = "MPS did not start: " + settings_.program;
  why += ended ? " ended with " + how : " did not listen within " + seconds_text(kStartSeconds);
  const std::string said = tail_of(command.log, kTailBytes);
  if (!said.empty()) why += "; it said: " + said;
  return Error{ErrorCode::kSystem, why + "; see " + command.log + kAdvice};
}

// By its folder, which it has in its environment; leases' servers have it, too.
bool MpsDaemon::is_server(const ProcessFacts& facts) const {
  return facts.name.starts_with(kServerName) &&
         has_variable(facts.id.pid, "CUDA_MPS_PIPE_DIRECTORY=" + settings_.pipe_folder);
}

void MpsDaemon::stop() {
  const bool ran = running();
  if (process_) process_->end(SIGTERM, kStopTime);
  process_.reset();
  if (!ran) return;
  // It does not take them with it, whatever group they are in.
  for (const ProcessFacts& facts : list_processes()) {
    if (!is_server(facts)) continue;
    if (auto server = Process::adopt(facts.id)) server->end(SIGTERM, kStopTime);
  }
}

}  // namespace flyt::node
