// HostCallWorker: runs the program's host functions and callbacks, one after the other.
#include "client/host_call_worker.h"

#include <utility>

#include "client/call.h"
#include "client/exchange.h"
#include "client/memory_state.h"
#include "client/recovery.h"
#include "client/session.h"
#include "commands/stream.h"
#include "wire/graphs.h"

namespace flyt::client {

void HostCallWorker::stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  // Nobody starts it any more.
  thread_.join();
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
    waiting_.emplace(command.token, Call{.body = body, .times = times()});
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
  return thread_.running() || (!stopping_ && thread_.start("flyt-host-call", [this] { run(); }));
}

std::uint64_t HostCallWorker::add_of_graphs(Body body, bool once) {
  std::uint64_t name = 0;
  {
    const Lock lock(mutex_);
    if (!start()) return 0;
    name = next_token_++;
    of_graphs_.emplace(name, Call{.body = std::move(body), .once = once});
  }
  if (!once) graph_functions_.fetch_add(1, std::memory_order_acq_rel);
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
  ready_.push_back({token, status, name, times()});
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
  // While the server puts commands off for a host function or late copy, these are what it waits
  // for.
  const rpc::KeptCredits credits;
  const rpc::AsThread as(wire::kHostCallThread);
  for (;;) {
    Ready ready;
    Call call;
    {
      const Lock lock(mutex_);
      while (ready_.empty() && !stopping_) wake_.wait(mutex_);
      if (stopping_) return;
      ready = ready_.front();
      ready_.pop_front();
      call = take(ready);
    }
    if (call.body) finish(ready, std::move(call));
  }
}

// Empty for what was lost meanwhile.
HostCallWorker::Call HostCallWorker::take(const Ready& ready) {
  if (ready.name != 0) {
    const auto found = of_graphs_.find(ready.name);
    if (found == of_graphs_.end()) return {};
    Call call = found->second;
    if (call.once) of_graphs_.erase(found);
    return call;
  }
  const auto found = waiting_.find(ready.token);
  if (found == waiting_.end()) return {};
  Call call = std::move(found->second);
  waiting_.erase(found);
  return call;
}

void HostCallWorker::finish(const Ready& ready, Call call) {
  call.body(ready.status);
  if (ready.name != 0) {
    // A destructor is waited for by nobody, and comes once.
    if (ready.token == wire::kGraphRun) return session_.channel().expect_pushes(-1);
    return tell_done(ready.token, ready.times);
  }
  // Only now, and before the stream goes on: what the function wrote may be copied from here on.
  in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  session_.channel().expect_pushes(-1);
  tell_done(ready.token, call.times);
}

// A lost session has nobody to tell, and one that went on has another process, which knows nothing
// of what ran.
void HostCallWorker::tell_done(std::uint64_t token, unsigned times) {
  const commands::HostCallDone command{.token = token};
  const auto steady = session_.steady();
  if (times != this->times()) return;
  // What the function wrote.
  session_.memory().mirror().before(commands::HostCallDone::kOp);
  static_cast<void>(send(session_.channel(), Session::context_index(), command));
}

unsigned HostCallWorker::times() const {
  const Recovery* const recovery = session_.recovery();
  return recovery == nullptr ? 0 : recovery->times();
}

}  // namespace flyt::client
