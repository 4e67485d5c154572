// HostCalls: host functions and callbacks of the client, at their place in its streams.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/annotations.h"
#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::server {

class Session;

// The driver runs a function of ours in the stream. It tells the client, whose function then runs
// there, and returns, so that the stream goes on, when the client says that it has run. Like
// native ones these functions run one after the other.
class HostCalls {
 public:
  static constexpr std::size_t kCallsMax = 64 * 1024;

  enum class Kind : std::uint32_t { kFunction = 0, kCallback = 1 };

  explicit HostCalls(Session& session);
  // Lets every waiting stream go on. The driver may come to the others later.
  ~HostCalls() { release_all(); }
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  // Puts one into `stream`, whose context is current. CUDA_ERROR_OUT_OF_MEMORY if kCallsMax wait.
  CUresult enqueue(CUstream stream, Kind kind, std::uint64_t token, std::uint64_t sequence);
  // The client's function has run. False if it was not running.
  bool done(std::uint64_t token);
  // Some stream waits, or will wait, for the client.
  bool any() const;
  // The session ends: nothing waits for the client any more, now and later.
  void release_all();

 private:
  // What the driver's threads see; it may outlive this object.
  struct Shared {
    mutable Mutex mutex;
    Condition changed;
    Session* session GUARDED_BY(mutex) = nullptr;  // Null: released.
    // Calls in streams: whether they are running, that is, wait for the client.
    std::map<std::uint64_t, bool> calls GUARDED_BY(mutex);
  };
  // Owned by the driver until it runs it.
  struct Entry {
    std::shared_ptr<Shared> shared;
    std::uint64_t token = 0;
    std::uint64_t sequence = 0;
  };

  static void run_function(void* entry);
  static void run_callback(CUstream stream, CUresult status, void* entry);
  static void reached(const Entry& entry, CUresult status);
  static void tell_client(Session& session, std::uint64_t token, std::uint64_t sequence,
                          CUresult status);

  const driver::Table& driver_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace flyt::server
