// Event: the last place in a stream where it was recorded.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/timeline.h"

namespace flyt::softgpu {

// One cuEventRecord.
struct Recording {
  Ticket ticket;
  std::atomic<std::int64_t> reached_ns{0};
};

// Safe from any thread.
class Event {
 public:
  Event(std::uint64_t context, unsigned flags) : context_(context), flags_(flags) {}

  std::uint64_t context() const { return context_; }
  bool timed() const { return (flags_ & CU_EVENT_DISABLE_TIMING) == 0; }

  // Null where it was never recorded.
  std::shared_ptr<Recording> recording() const {
    const Lock lock(mutex_);
    return recording_;
  }
  void set_recording(std::shared_ptr<Recording> recording) {
    const Lock lock(mutex_);
    recording_ = std::move(recording);
  }

 private:
  const std::uint64_t context_;  // Handle.
  const unsigned flags_;
  mutable Mutex mutex_;
  std::shared_ptr<Recording> recording_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
