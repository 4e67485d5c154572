#include "control/node/gpu_watch.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "control/node/nvml_gpus.h"

namespace flyt::node {
namespace {

constexpr Duration kLooks = std::chrono::seconds(1);

// Software GPUs fail as their driver is told to (docs/flyt-server.md).
GpuFailures failed_software(const Config& config) {
  GpuFailures failures;
  const char* const folder = std::getenv("FLYT_SOFTGPU_LOST");
  if (folder == nullptr || *folder == '\0') return failures;
  for (std::uint32_t i = 0; i < config.soft; ++i) {
    const std::string file = std::string(folder) + "/lost-" + std::to_string(i);
    if (::access(file.c_str(), F_OK) == 0) failures[i] = "there is " + file;
  }
  return failures;
}

}  // namespace

GpuFailures failed_gpus(const Config& config) {
  if (config.soft != 0) return failed_software(config);
  const auto nvml = NvmlGpus::open(config.nvml);
  return nvml ? (*nvml)->failures() : GpuFailures();
}

GpuWatch::GpuWatch(const Config& config, GpuFailures before, std::function<void()> changed)
    : config_(config),
      changed_(std::move(changed)),
      failures_(std::move(before)),
      thread_([this] { run(); }) {}

GpuWatch::~GpuWatch() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

GpuFailures GpuWatch::failures() const {
  const Lock lock(mutex_);
  return failures_;
}

void GpuWatch::run() {
  // Kept open: beginning with it takes longer than a look.
  std::unique_ptr<NvmlGpus> nvml;
  if (config_.soft == 0) {
    if (auto opened = NvmlGpus::open(config_.nvml)) nvml = std::move(*opened);
  }
  while (true) {
    GpuFailures now = nvml != nullptr ? nvml->failures() : failed_software(config_);
    std::unique_lock<Mutex> lock(mutex_);
    const std::size_t before = failures_.size();
    failures_.merge(now);
    const bool more = failures_.size() != before;
    if (more) {
      lock.unlock();
      changed_();
      lock.lock();
    }
    if (stop_.wait_for(lock, kLooks, [this] { return stopping_; })) return;
  }
}

}  // namespace flyt::node
