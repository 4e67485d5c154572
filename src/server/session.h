// Session: one client process, served by one server process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/annotations.h"
#include "base/log.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "rpc/endpoint.h"
#include "server/completion.h"
#include "server/handles.h"
#include "server/regions.h"
#include "server/request.h"
#include "server/workers.h"

namespace flyt::server {

struct MemorySubjects;  // Arena, pinned window, pending deliveries...: server/memory_subjects.h.
struct CodeSubjects;    // Modules, functions, uploads in progress: server/code_subjects.h.

// Commands are decoded and started by the main thread in order of their sequence numbers; work that
// may take long goes to workers(), waits on the GPU to completions().
class Session {
 public:
  Session(rpc::Endpoint& endpoint, const driver::Table& driver, const Log& log,
          const Clock& clock);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Serves until the client leaves, is lost or breaks a rule; returns the reason for the log.
  std::string run();

  rpc::Endpoint& endpoint() { return endpoint_; }
  const driver::Table& driver() const { return driver_; }
  const Log& log() const { return log_; }
  const Clock& clock() const { return clock_; }
  Handles& handles() { return handles_; }
  Regions& regions() { return regions_; }
  Workers& workers() { return workers_; }
  Completions& completions() { return completions_; }  // Main thread only.
  MemorySubjects& memory() { return *memory_; }
  CodeSubjects& code() { return *code_; }

  // Runs `work` on a worker with the request's context current. For `slow` and `later` commands.
  void run_slow(Request request, std::function<void(Request)> work);

  // Makes the context of that handle index current on the calling thread (cheap if it is already).
  // CUDA_ERROR_INVALID_CONTEXT if there is none; index 0 makes none current.
  CUresult enter(std::uint32_t context);

  // The stream that stands for CU_STREAM_PER_THREAD of one client thread in one context, made at
  // first use; null with the driver's result in `result` if that fails.
  CUstream thread_stream(std::uint32_t context, std::uint32_t thread, CUresult& result);

  // Ends the session with a reason: the peer broke a rule. Safe from any thread; the main thread
  // acts on it before the next command.
  void end(std::string reason);

  // Remembers the failure of a posted command for the next reply; the first wins.
  void note_posted_error(CUresult error, std::uint64_t sequence);
  struct PostedError {
    CUresult error = CUDA_SUCCESS;
    std::uint64_t sequence = 0;
  };
  PostedError take_posted_error();

  // Called before every reply: sends what must reach the client first (finished D2H copies, printf
  // output). Subjects add their own at construction.
  void before_replies(std::function<void()> flush);
  void flush_before_reply();

 private:
  void dispatch(rpc::Command command);

  rpc::Endpoint& endpoint_;
  const driver::Table& driver_;
  Log log_;
  const Clock& clock_;
  Handles handles_;
  Regions regions_;
  Completions completions_{*this};
  std::unique_ptr<MemorySubjects> memory_;
  std::unique_ptr<CodeSubjects> code_;
  std::vector<std::function<void()>> flushes_;
  Mutex mutex_;
  PostedError posted_error_ GUARDED_BY(mutex_);
  std::string end_reason_ GUARDED_BY(mutex_);
  std::atomic<bool> ending_{false};
  Workers workers_;  // Last: its threads use all of the above.
};

}  // namespace flyt::server
