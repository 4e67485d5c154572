// HostCalls: host functions and callbacks of the client, at their place in its streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "base/annotations.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "wire/limits.h"

namespace flyt::server {

class Session;

// The driver runs a function of ours in the stream. It tells the client, whose function then runs
// there, and returns, so that the stream goes on, when the client says that it has run. Like
// native ones these functions run one after the other.
class HostCalls {
 public:
  static constexpr std::size_t kCallsMax = wire::kHostCallsMax;
  static constexpr std::size_t kGraphFunctionsMax = 1 << 20;

  enum class Kind : std::uint32_t { kFunction = 0, kCallback = 1 };

  explicit HostCalls(Session& session);
  // Lets every waiting stream go on. The driver may come to the others later.
  ~HostCalls() { release_all(); }
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  // Puts one into `stream`, whose context is current. CUDA_ERROR_OUT_OF_MEMORY if kCallsMax wait.
  CUresult enqueue(CUstream stream, Kind kind, std::uint64_t token, std::uint64_t sequence);
  // What a node of a graph is given to run the client's function of that name, as often as it comes
  // to it, with run_graph_function or, in a stream that captures, run_graph_callback. It stays
  // until the session ends, for nobody tells when the last graph has forgotten it. Null when there
  // are kGraphFunctionsMax.
  void* graph_function(std::uint64_t name);
  // The name of such a function; 0 for what is none.
  std::uint64_t name_of(const void* graph_function) const;
  static void run_graph_function(void* entry);
  static void run_graph_callback(CUstream stream, CUresult status, void* entry);
  // The destructor of a user object: the client's function runs, and nobody waits for it.
  static void run_destructor(void* entry);
  // What run_destructor is given for the object of that handle; the driver's until then.
  // release_destructor: it never will run.
  void* destructor(std::uint64_t function, std::uint64_t object);
  static void release_destructor(void* entry);

  // The client's function has run. False if it was not running.
  bool done(std::uint64_t token);
  // Some stream waits, or will wait, for the client. Any thread, as the next.
  bool any() const;
  // Some stream or graph has had one, as others may soon.
  bool ever() const { return ever_.load(std::memory_order_relaxed); }
  // The same without those that graphs will run when they are launched again.
  bool under_way() const;
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
    std::uint64_t runs GUARDED_BY(mutex) = 0;  // Of graphs' functions.
  };
  struct GraphFunction {
    std::shared_ptr<Shared> shared;
    std::uint64_t name = 0;
    std::uint64_t object = 0;  // Of a destructor.
  };
  // Owned by the driver until it runs it.
  struct Entry {
    std::shared_ptr<Shared> shared;
    std::uint64_t token = 0;
    std::uint64_t sequence = 0;
  };

  static void run_function(void* entry);
  static void run_callback(CUstream stream, CUresult status, void* entry);
  // `function` != 0: of a graph, whose run has the name `token`.
  static void reached(Shared& shared, std::uint64_t token, std::uint64_t sequence, CUresult status,
                      std::uint64_t function = 0);
  static void run_of_graph(const GraphFunction& function, CUresult status);
  static void tell_client(Session& session, std::uint64_t token, std::uint64_t sequence,
                          CUresult status, std::uint64_t function);

  const driver::Table& driver_;
  const std::shared_ptr<Shared> shared_;
  // By name. Main thread only. Graphs may run them until the process ends.
  std::map<std::uint64_t, std::unique_ptr<GraphFunction>> functions_;
  std::set<const void*> function_entries_;
  std::atomic<bool> in_graphs_{false};  // There are such functions.
  std::atomic<bool> ever_{false};
};

}  // namespace flyt::server
