// Event: the last place in a stream where it was recorded.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/shared_event.h"
#include "softgpu/timeline.h"

namespace flyt::softgpu {

// One cuEventRecord.
struct Recording {
  Ticket ticket;
  std::atomic<std::int64_t> reached_ns{0};
};

struct EventCapture;

// Safe from any thread.
class Event {
 public:
  // `shared`: of an event that several processes use, else null.
  Event(std::uint64_t context, unsigned flags, std::shared_ptr<SharedEvent> shared = nullptr)
      : context_(context), flags_(flags), shared_(std::move(shared)) {}

  const std::shared_ptr<SharedEvent>& shared() const { return shared_; }

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
    capture_ = nullptr;
  }

  // The place in a capture where it was recorded last; null where that was no capture.
  std::shared_ptr<const EventCapture> capture() const {
    const Lock lock(mutex_);
    return capture_;
  }
  void set_capture(std::shared_ptr<const EventCapture> capture) {
    const Lock lock(mutex_);
    capture_ = std::move(capture);
  }

 private:
  const std::uint64_t context_;  // Handle.
  const unsigned flags_;
  const std::shared_ptr<SharedEvent> shared_;
  mutable Mutex mutex_;
  std::shared_ptr<Recording> recording_ GUARDED_BY(mutex_);
  std::shared_ptr<const EventCapture> capture_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
