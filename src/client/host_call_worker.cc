// HostCallWorker: runs the program's host functions and callbacks, one after the other.
#include "client/host_call_worker.h"

#include <utility>

#include "client/call.h"
#include "client/session.h"
#include "commands/stream.h"

namespace flyt::client {

// thread_ is joined as the last member's destructor runs.
HostCallWorker::~HostCallWorker() {
  const Lock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

CUresult HostCallWorker::add(CUstream stream, std::uint32_t kind, Body body) {
  commands::HostCall command{.stream = stream, .kind = kind};
  {
    const Lock lock(mutex_);
    if (!thread_.running() && !thread_.start("flyt-host-call", [this] { run(); })) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    command.token = next_token_++;
    waiting_.emplace(command.token, std::move(body));
  }
  in_flight_.fetch_add(1, std::memory_order_acq_rel);
  session_.channel().expect_pushes(1);
  const CUresult result = session_.post(command);
  if (result == CUDA_SUCCESS) return result;
  const Lock lock(mutex_);
  if (waiting_.erase(command.token) != 0) in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  return result;
}

void HostCallWorker::reached(std::uint64_t token, CUresult status) {
  const Lock lock(mutex_);
  // A token that nobody added is a fault of the server and changes nothing here.
  if (!waiting_.contains(token)) return;
  ready_.push_back({token, status});
  wake_.notify_one();
}

void HostCallWorker::on_lost() {
  const Lock lock(mutex_);
  ready_.clear();
  in_flight_.fetch_sub(waiting_.size(), std::memory_order_acq_rel);
  waiting_.clear();
}

void HostCallWorker::run() {
  const SessionScope scope(&session_);
  for (;;) {
    Ready ready;
    Body body;
    {
      const Lock lock(mutex_);
      while (ready_.empty() && !stopping_) wake_.wait(mutex_);
      if (stopping_) return;
      ready = ready_.front();
      ready_.pop_front();
      const auto found = waiting_.find(ready.token);
      if (found == waiting_.end()) continue;
      body = std::move(found->second);
      waiting_.erase(found);
    }
    finish(ready, std::move(body));
  }
}

void HostCallWorker::finish(const Ready& ready, Body body) {
  body(ready.status);
  // Only now, and before the stream goes on: what the function wrote may be copied from here on.
  in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  session_.channel().expect_pushes(-1);
  // A lost session has nobody to tell.
  static_cast<void>(session_.post(commands::HostCallDone{.token = ready.token}));
}

}  // namespace flyt::client
