// HostCallWorker: runs the program's host functions and callbacks, one after the other.
#include "client/streams/host_call_worker.h"

#include <tuple>
#include <utility>

#include "client/call.h"
#include "client/exchange.h"
#include "client/memory_state.h"
#include "client/recovery/recovery.h"
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
    command.token = book_.add(body, times());
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
  if (book_.remove(command.token)) in_flight_.fetch_sub(1, std::memory_order_acq_rel);
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
    name = book_.add_of_graphs(std::move(body), once);
  }
  if (!once) graph_functions_.fetch_add(1, std::memory_order_acq_rel);
  session_.channel().expect_pushes(1);
  return name;
}

void HostCallWorker::remove_of_graphs(std::uint64_t name) {
  {
    const Lock lock(mutex_);
    if (!book_.remove_of_graphs(name)) return;
  }
  session_.channel().expect_pushes(-1);
}

bool HostCallWorker::reached(std::uint64_t token, CUresult status, std::uint64_t name) {
  const Lock lock(mutex_);
  if (!book_.reached({token, status, name, times()})) return false;
  wake_.notify_one();
  return true;
}

void HostCallWorker::on_lost() {
  const Lock lock(mutex_);
  in_flight_.fetch_sub(book_.forget_all(), std::memory_order_acq_rel);
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
      while (!book_.any_due() && !stopping_) wake_.wait(mutex_);
      if (stopping_) return;
      std::tie(ready, call) = book_.take();
    }
    if (call.body) finish(ready, std::move(call));
  }
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

unsigned HostCallWorker::times() const { return session_.times_recovered(); }

}  // namespace flyt::client
