// HostCallWorker: runs the program's host functions and callbacks, one after the other.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/annotations.h"
#include "client/streams/host_call_book.h"
#include "cuda/types.h"
#include "rpc/thread.h"

namespace flyt::client {

class Session;

// Calls are added before their command is sent, run when the server says that their stream has
// come to them, on one thread that is made when it is first needed, and are answered then. Safe
// from any thread.
class HostCallWorker {
 public:
  using Body = HostCallBook::Body;

  explicit HostCallWorker(Session& session) : session_(session) {}
  ~HostCallWorker() { stop(); }
  HostCallWorker(const HostCallWorker&) = delete;
  HostCallWorker& operator=(const HostCallWorker&) = delete;

  // Puts a host function (kind 0) or callback (kind 1) into a stream of the current context.
  CUresult add(CUstream stream, std::uint32_t kind, Body body) EXCLUDES(mutex_);
  // A function that graphs run, as often as they come to it, or (once) the destructor of an object
  // of theirs: its name. 0: there can be no thread to run it.
  std::uint64_t add_of_graphs(Body body, bool once = false) EXCLUDES(mutex_);
  void remove_of_graphs(std::uint64_t name) EXCLUDES(mutex_);
  // A stream has come to one; with `name`, a graph to the function of that name. From the thread
  // that reads the socket. False: so many are due that the server broke a rule.
  bool reached(std::uint64_t token, CUresult status, std::uint64_t name = 0) EXCLUDES(mutex_);
  // Added and not finished: memory may still change by them.
  // A graph may come to its functions whenever it was launched.
  bool any() const { return under_way() || graph_functions_.load(std::memory_order_acquire) != 0; }
  // The same without those of graphs.
  bool under_way() const { return in_flight_.load(std::memory_order_acquire) != 0; }
  // The session ends: waits for what is running, which uses the channel, and runs nothing else.
  void stop() EXCLUDES(mutex_) NO_THREAD_SAFETY_ANALYSIS;
  // The session is lost: nothing will be reached any more.
  void on_lost() EXCLUDES(mutex_);

 private:
  using Ready = HostCallBook::Ready;
  using Call = HostCallBook::Call;

  void run() EXCLUDES(mutex_);
  void finish(const Ready& ready, Call call);
  void tell_done(std::uint64_t token, unsigned times);
  unsigned times() const;
  bool start() REQUIRES(mutex_);
  // False: the session was lost meanwhile.
  bool try_to_add(CUstream stream, std::uint32_t kind, const Body& body, CUresult& result)
      EXCLUDES(mutex_);

  Session& session_;
  std::atomic<std::uint64_t> in_flight_{0};
  std::atomic<std::uint64_t> graph_functions_{0};
  Mutex mutex_;
  Condition wake_;
  HostCallBook book_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  rpc::Thread thread_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
