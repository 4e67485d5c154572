// HostCalls: host functions and callbacks of the client, at their place in its streams.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::server {

class Session;

// The driver runs a function of ours in the stream. It tells the client, whose function then runs
// there, and returns, so that the stream goes on, when the client says that it has run. Like
// native ones these functions run one after the other.
class HostCalls {
 public:
  enum class Kind : std::uint32_t { kFunction = 0, kCallback = 1 };

  explicit HostCalls(Session& session) : session_(session) {}
  // Lets every waiting stream go on.
  ~HostCalls() { release_all(); }
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  // Puts one into `stream`, whose context is current.
  CUresult enqueue(CUstream stream, Kind kind, std::uint64_t token, std::uint64_t sequence)
      EXCLUDES(mutex_);
  // The client's function has run. False if it was not running.
  bool done(std::uint64_t token) EXCLUDES(mutex_);
  // Some stream waits, or will wait, for the client.
  bool any() const EXCLUDES(mutex_);
  // The session ends: nothing waits for the client any more, now and later.
  void release_all() EXCLUDES(mutex_);

 private:
  struct Entry {
    HostCalls* owner = nullptr;
    std::uint64_t token = 0;
    std::uint64_t sequence = 0;
    CUresult status = CUDA_SUCCESS;
    bool running = false;
    bool done = false;
  };

  static void run_function(void* entry);
  static void run_callback(CUstream stream, CUresult status, void* entry);
  void reached(Entry& entry) EXCLUDES(mutex_);
  void tell_client(std::uint64_t token, std::uint64_t sequence, CUresult status);

  Session& session_;
  mutable Mutex mutex_;
  Condition changed_;
  std::map<std::uint64_t, std::unique_ptr<Entry>> entries_ GUARDED_BY(mutex_);
  bool released_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::server
