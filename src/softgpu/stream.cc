#include "softgpu/stream.h"

#include <utility>

namespace flyt::softgpu {

void Stream::await_room() {
  const Lock lock(mutex_);
  while (queue_.size() >= kWaitingMax) room_.wait(mutex_);
}

Ticket Stream::push(Operation operation) {
  Ticket ticket{timeline_, 0};
  bool start = false;
  {
    const Lock lock(mutex_);
    queue_.push_back(std::move(operation));
    ticket.sequence = ++pushed_;
    start = !std::exchange(draining_, true);
  }
  if (start) {
    workers_.run([self = shared_from_this()] { self->drain(); });
  }
  return ticket;
}

Ticket Stream::last() const {
  const Lock lock(mutex_);
  return {timeline_, pushed_};
}

void Stream::drain() {
  std::uint64_t done = 0;
  for (;;) {
    Operation operation;
    {
      const Lock lock(mutex_);
      if (queue_.empty()) {
        draining_ = false;
        return;
      }
      operation = std::move(queue_.front());
      queue_.pop_front();
      done = pushed_ - queue_.size();
      if (queue_.size() == kWaitingMax - 1) room_.notify_all();
    }
    for (const Ticket& ticket : operation.after) ticket.wait();
    const CUresult status = fate_->ended() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : fate_->error();
    if (operation.always || status == CUDA_SUCCESS) operation.run(status);
    // What the operation holds must be gone when somebody sees it done.
    operation = Operation();
    timeline_->complete(done);
  }
}

StreamAttributes Stream::attributes() const {
  const Lock lock(mutex_);
  return attributes_;
}

void Stream::set_attributes(const StreamAttributes& attributes) {
  const Lock lock(mutex_);
  attributes_ = attributes;
}

}  // namespace flyt::softgpu
