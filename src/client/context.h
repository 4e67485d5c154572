// Contexts as the program sees them, and what each thread has current.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "client/handle_table.h"
#include "client/streams/context_streams.h"
#include "client/streams/stream_load.h"
#include "cuda/types.h"

namespace flyt::client {

// One context. Never goes away, because native programs may still name a context that they have
// destroyed; a primary context comes alive again under the same handle. Plain fields are written
// before the handle is published and constant afterwards.
struct ContextState {
  std::uint64_t handle = 0;
  std::uint32_t index = 0;  // Of the handle, as command headers carry it.
  CUdevice device = 0;
  bool primary = false;
  std::uint64_t id = 0;  // cuCtxGetId
  // The context to which all belongs that is made while this one is current: itself, or the
  // device's primary context where this one was converted from a green context.
  ContextState* home = nullptr;
  std::uint64_t green = 0;            // That green context; 0: none.
  std::uint32_t multiprocessors = 0;  // Of a green context.
  // The handle while the context is alive, else 0.
  std::atomic<std::uint64_t> live{0};
  // The device error that every later call in this context gets; 0: none.
  std::atomic<int> sticky{0};
  std::atomic<std::uint32_t> attached{1};  // How often cuCtxDetach has to be called to end it.
  std::atomic<std::uint32_t> api_version{0};
  std::atomic<std::uint32_t> flags{0};
  std::atomic<int> cache_config{0};
  std::atomic<std::uint32_t> affinity{0};  // Multiprocessors asked for by exec affinity; 0: all.
  std::atomic<int> least_priority{0};
  std::atomic<int> greatest_priority{0};
  // cuCtxGetLimit, by CUlimit; kUnknownLimit where the driver knows none.
  static constexpr std::uint64_t kUnknownLimit = ~0ULL;
  std::array<std::atomic<std::uint64_t>, CU_LIMIT_MAX> limits{};
  ContextStreams streams;
  StreamLoad legacy_load;

  void reset() {}  // For HandleTable, which never uses a context's slot again.
};

// A context below the current one of a thread.
struct StackedContext {
  ContextState* context = nullptr;
  StackedContext* below = nullptr;
};

// Whether a thread is inside a function of the program that a stream has come to.
enum class HostCall : std::uint8_t {
  kNone,
  kFunction,  // cuLaunchHostFunc: must not call CUDA.
  kCallback,  // cuStreamAddCallback: may only ask what is done.
};

class Session;

// The stream that a thread saw done last: StreamSeenDone.
struct SeenDone {
  const Session* session = nullptr;
  std::uint64_t context = 0;
  CUstream stream = nullptr;
  std::uint64_t newest = 0;  // rpc::Channel::newest() then.
  Instant at;
};

// The stream that a thread found busy last: watching a stream in client/streams/watches.h.
struct SeenBusy {
  const Session* session = nullptr;
  std::uint64_t context = 0;
  CUstream stream = nullptr;
  std::uint64_t newest = 0;  // rpc::Channel::newest() then.
  std::uint64_t watch = 0;   // 0: not watched yet.
};

// How full a thread's own default stream is, in the context that it used it in last.
struct OwnLoad {
  const StreamLoads* loads = nullptr;
  std::uint64_t context = 0;
  StreamLoad* load = nullptr;
};

// What one thread of the program has. Belongs to its thread.
struct ThreadState {
  HostCall host_call = HostCall::kNone;
  // cuThreadExchangeStreamCaptureMode.
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  // The current context and its handle; null and 0 for none.
  ContextState* current_state = nullptr;
  // Plain pointers: CUDA's libraries call in when thread-locals with destructors are gone already.
  StackedContext* below = nullptr;
  std::uint64_t current = 0;
  SeenDone seen_done;
  SeenBusy seen_busy;
  OwnLoad own_load;
  // The server is told when it ends: streams/thread_streams.h.
  bool has_streams = false;
};

// The calling thread's.
ThreadState& thread_state();

// A device's primary context.
struct PrimaryContext {
  Mutex mutex;  // Held while it comes alive or dies, so that nobody sees it half made.
  std::uint32_t retained GUARDED_BY(mutex) = 0;
  ContextState* state GUARDED_BY(mutex) = nullptr;  // Null until it is first retained.
  // As cuDevicePrimaryCtxGetState tells them, which programs ask before nearly every call.
  std::atomic<bool> active{false};
  std::atomic<std::uint32_t> flags{0};
};

// A green context.
struct GreenState {
  ContextState* context = nullptr;  // What it converts to.

  void reset() { context = nullptr; }
};

// CUdevResourceDesc: never given back, so equal ones are the same. Safe from any thread.
class ResourceDescriptions {
 public:
  ResourceDescriptions();

  // The server's numbers of the resources, and how many multiprocessors these are.
  struct Description {
    std::vector<std::uint64_t> resources;
    std::uint32_t multiprocessors = 0;

    void reset() { *this = {}; }
  };

  // 0: there is none like that yet.
  std::uint64_t find(const std::vector<std::uint64_t>& resources) const EXCLUDES(mutex_);
  void add(std::uint64_t handle, const std::vector<std::uint64_t>& resources) EXCLUDES(mutex_);

  HandleTable<Description> table;

 private:
  mutable Mutex mutex_;
  std::map<std::vector<std::uint64_t>, std::uint64_t> known_ GUARDED_BY(mutex_);
};

// All contexts of a session. Safe from any thread.
class Contexts {
 public:
  explicit Contexts(std::size_t devices);

  // Null for anything that never was a context.
  ContextState* find(CUcontext context) const { return table_.find(address_of(context)); }
  HandleTable<ContextState>& table() { return table_; }
  // device < number of devices.
  PrimaryContext& primary(CUdevice device) { return primaries_[static_cast<std::size_t>(device)]; }
  HandleTable<GreenState> greens;
  ResourceDescriptions descriptions;

  // A context that is not alive yet; null when there are no handles left. `home` and `green`: of a
  // green context's.
  ContextState* make(CUdevice device, bool primary, ContextState* home = nullptr,
                     std::uint64_t green = 0);
  // The live green contexts of a device's primary context.
  std::vector<ContextState*> greens_of(const ContextState& primary) const;

 private:
  HandleTable<ContextState> table_;
  std::unique_ptr<PrimaryContext[]> primaries_;
  std::atomic<std::uint64_t> next_id_{1};
};

// Makes a context the calling thread's current one, in place of the present one; null for none.
void set_current(ContextState* context);
// The same, keeping the present one below it.
void push_current(ContextState* context);
// Drops the current context; the one below it, if any, becomes current.
void pop_current();

}  // namespace flyt::client
