// Monitor: a process's connection for questions about the GPUs. It is no session of CUDA: it makes
// no context and takes no memory of a GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "client/exchange.h"
#include "client/nvml/event_sets.h"
#include "client/provision.h"
#include "client/refusals.h"
#include "nvml/gpu.h"
#include "rpc/no_pushes.h"

namespace flyt::client::nvml {

// Safe from any thread.
class Monitor {
 public:
  // Connects to what the environment or this machine's client manager names, and fetches what never
  // changes.
  static Result<std::shared_ptr<Monitor>> open();

  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  const std::vector<flyt::nvml::Gpu>& gpus() const { return gpus_; }
  const std::string& driver_version() const { return driver_version_; }
  const std::string& nvml_version() const { return nvml_version_; }
  int cuda_version() const { return cuda_version_; }

  // Null unless it is a handle of ours.
  const flyt::nvml::Gpu* find(nvmlDevice_t device) const;

  // Sends a command and waits for its answer; NVML_ERROR_GPU_IS_LOST without one. Views in `reply`
  // are valid as long as `answer`.
  template <class Command>
  nvmlReturn_t ask(const Command& command, typename Command::Reply& reply, rpc::Reply& answer) {
    if (!exchange(*channel_, 0, command, reply, answer)) return NVML_ERROR_GPU_IS_LOST;
    return static_cast<nvmlReturn_t>(answer.result());
  }

  // For ever: a new one must be opened.
  bool lost() const { return channel_->lost(); }
  // Says goodbye. Present and later calls fail.
  void close();
  // The server broke a rule.
  void give_up(std::string_view reason) { channel_->shut_down(reason); }
  // In the child of a fork; the object must then never be destroyed.
  void abandon_after_fork() {
    channel_->abandon_after_fork();
    if (desk_ != nullptr) desk_->abandon();
  }

  const Log& log() const { return log_; }
  Refusals& refusals() { return refusals_; }
  EventSets& event_sets() { return event_sets_; }

 private:
  Monitor();
  Status start(Provision& provision);
  Status describe();

  const Log log_;
  std::unique_ptr<rpc::NoPushes> pushes_;  // Nothing is pushed to a monitor.
  std::unique_ptr<rpc::Channel> channel_;
  std::vector<flyt::nvml::Gpu> gpus_;
  std::string driver_version_;
  std::string nvml_version_;
  int cuda_version_ = 0;
  Refusals refusals_;
  EventSets event_sets_;
  std::unique_ptr<transport::Connection> desk_;  // To the client manager, if it was one.
};

}  // namespace flyt::client::nvml
