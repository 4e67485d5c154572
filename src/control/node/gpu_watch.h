// GpuWatch: looks again and again whether the machine's GPUs are still there.
#pragma once

#include <functional>
#include <thread>

#include "base/annotations.h"
#include "control/node/config.h"
#include "control/node/lease.h"

namespace flyt::node {

// Those that have failed by now. May take as long as a driver does that has trouble with one.
GpuFailures failed_gpus(const Config& config);

// Safe from any thread. A GPU that has failed stays so: what ran there is lost.
class GpuWatch {
 public:
  // `before`: what is known already. `changed` is called on the watch's thread when there are more.
  GpuWatch(const Config& config, GpuFailures before, std::function<void()> changed);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  GpuFailures failures() const;

 private:
  void run();

  const Config& config_;
  const std::function<void()> changed_;
  mutable Mutex mutex_;
  Condition stop_;
  GpuFailures failures_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  // lint: allow(threads): it waits for NVML, which no simulator orders.
  std::thread thread_;
};

}  // namespace flyt::node
