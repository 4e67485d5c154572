// XidWatch: hears of errors (Xids) of this machine's GPUs when they happen.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/log.h"
#include "control/node/config.h"
#include "control/node/xid.h"

namespace flyt::node {

class NvmlGpus;

// Safe from any thread. Beside GpuWatch, whose questions may hang just when there is something to
// hear.
class XidWatch {
 public:
  // `heard` is called on the watch's thread when there is something to take.
  XidWatch(const Config& config, const Log& log, std::function<void()> heard);
  // Takes a second at most, unless NVML hangs.
  ~XidWatch();
  XidWatch(const XidWatch&) = delete;
  XidWatch& operator=(const XidWatch&) = delete;

  // By GPU: those since the last call.
  std::map<std::uint32_t, XidCounts> take();

 private:
  class SoftXids;
  using Heard = std::map<std::uint32_t, XidCounts>;

  void run_nvml();
  void run_soft();
  // The numbers of GPUs that are heard.
  std::size_t listen(NvmlGpus& nvml);
  // Until there is an error or it is to stop.
  void hear(NvmlGpus& nvml);
  bool hear_some(NvmlGpus& nvml, Heard& heard);
  void deliver(const Heard& heard);
  void complain(const std::string& why);
  // Returns then, or as soon as it is to stop, which it says.
  bool stops_before(Instant moment);

  const Config& config_;
  const Log log_;
  const std::function<void()> heard_;
  const std::unique_ptr<SoftXids> soft_;
  std::map<std::uint32_t, std::string> deaf_;  // The thread's: of which GPUs nothing is heard, why.
  std::string complaint_;                      // The thread's: the last one, while it lasts.
  Mutex mutex_;
  Condition stop_;
  Heard waiting_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  // lint: allow(threads): it waits for NVML, which no simulator orders.
  std::thread thread_;
};

}  // namespace flyt::node
