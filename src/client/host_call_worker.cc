// HostCallWorker: runs the program's host functions and callbacks, one after the other.
#include "client/host_call_worker.h"

#include <utility>

#include "client/call.h"
#include "client/session.h"
#include "commands/stream.h"
#include "wire/graphs.h"

namespace flyt::client {

// thread_ is joined as the last member's destructor runs.
HostCallWorker::~HostCallWorker() {
  const Lock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

CUresult HostCallWorker::add(CUstream stream, std::uint32_t kind, Body body) {
  CUresult result = CUDA_SUCCESS;
  const auto attempt = [&] { return try_to_add(stream, kind, body, result); };
  const CUresult lost = attempt() ? CUDA_SUCCESS : session_.again(attempt);
  return lost == CUDA_SUCCESS ? result : lost;
}

bool HostCallWorker::try_to_add(CUstream stream, std::uint32_t kind, const Body& body,
                                CUresult& result) {
  // What is lost with one connection is not added to another one.
  const auto steady = session_.steady();
  commands::HostCall command{.stream = stream, .kind = kind};
  result = CUDA_ERROR_OUT_OF_MEMORY;
  {
    const Lock lock(mutex_);
    if (!start()) return true;
    command.token = next_token_++;
    waiting_.emplace(command.token, body);
  }
  in_flight_.fetch_add(1, std::memory_order_acq_rel);
  session_.channel().expect_pushes(1);
  // While streams are captured it is heard, and capturing sessions do not go on elsewhere.
  const bool heard = session_.captures().any();
  result = heard ? session_.post(command) : CUDA_SUCCESS;
  const bool sent = heard || session_.post_once(command);
  if (sent && result == CUDA_SUCCESS) return true;
  session_.channel().expect_pushes(-1);
  const Lock lock(mutex_);
  if (waiting_.erase(command.token) != 0) in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  return sent;
}

bool HostCallWorker::start() {
  return thread_.running() || thread_.start("flyt-host-call", [this] { run(); });
}

std::uint64_t HostCallWorker::add_of_graphs(Body body, bool once) {
  std::uint64_t name = 0;
  {
    const Lock lock(mutex_);
    if (!start()) return 0;
    name = next_token_++;
    of_graphs_.emplace(name, GraphFunction{std::move(body), once});
  }
  if (!once) in_flight_.fetch_add(1, std::memory_order_acq_rel);
  session_.channel().expect_pushes(1);
  return name;
}

void HostCallWorker::remove_of_graphs(std::uint64_t name) {
  {
    const Lock lock(mutex_);
    if (of_graphs_.erase(name) == 0) return;
  }
  session_.channel().expect_pushes(-1);
}

void HostCallWorker::reached(std::uint64_t token, CUresult status, std::uint64_t name) {
  const Lock lock(mutex_);
  // What nobody added is a fault of the server and changes nothing here.
  const bool known = name != 0 ? of_graphs_.contains(name) : waiting_.contains(token);
  if (!known) return;
  ready_.push_back({token, status, name});
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
      body = take(ready);
    }
    if (body) finish(ready, std::move(body));
  }
}

// Empty for what was lost meanwhile.
HostCallWorker::Body HostCallWorker::take(const Ready& ready) {
  if (ready.name != 0) {
    const auto found = of_graphs_.find(ready.name);
    if (found == of_graphs_.end()) return {};
    Body body = found->second.body;
    if (found->second.once) of_graphs_.erase(found);
    return body;
  }
  const auto found = waiting_.find(ready.token);
  if (found == waiting_.end()) return {};
  Body body = std::move(found->second);
  waiting_.erase(found);
  return body;
}

void HostCallWorker::finish(const Ready& ready, Body body) {
  body(ready.status);
  if (ready.name != 0) {
    // A destructor is waited for by nobody, and comes once.
    if (ready.token == wire::kGraphRun) return session_.channel().expect_pushes(-1);
    static_cast<void>(session_.post(commands::HostCallDone{.token = ready.token}));
    return;
  }
  // Only now, and before the stream goes on: what the function wrote may be copied from here on.
  in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  session_.channel().expect_pushes(-1);
  // A lost session has nobody to tell.
  static_cast<void>(session_.post(commands::HostCallDone{.token = ready.token}));
}

}  // namespace flyt::client
