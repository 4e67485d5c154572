// MemoryState: what the client keeps about memory, copies, streams and events.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "client/context.h"
#include "client/handle_table.h"
#include "client/memory/address_space.h"
#include "client/memory/host_mirror.h"
#include "client/memory/images.h"
#include "client/memory/memory_map.h"
#include "client/memory/pinned_heap.h"
#include "client/memory/shared_memory.h"
#include "client/peer_access.h"
#include "client/streams/fences.h"
#include "client/streams/host_call_worker.h"
#include "client/streams/watches.h"
#include "client/transfers/transfers.h"
#include "cuda/managed_ranges.h"
#include "cuda/types.h"
#include "wire/hello.h"

namespace flyt::client {

class Session;

// A value that several threads may set and ask for.
template <class T>
class Kept {
 public:
  void set(const T& value) EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    value_ = value;
  }
  T get() const EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return value_;
  }

 private:
  mutable Mutex mutex_;
  T value_ GUARDED_BY(mutex_){};
};

struct StreamState {
  ContextState* context = nullptr;
  std::uint64_t handle = 0;
  unsigned int flags = 0;
  std::uint64_t id = 0;
  std::atomic<int> priority{0};
  std::atomic<int> sync_policy{-1};
  std::atomic<int> mem_sync_domain{0};
  std::atomic<std::uint16_t> mem_sync_domain_map{0x0100};  // Default 0, remote 1.
  Kept<CUaccessPolicyWindow> access_window;
  StreamLoad load;

  void reset() {
    load.reset();
    access_window.set({});
    priority = 0;
    sync_policy = -1;
    mem_sync_domain = 0;
    mem_sync_domain_map = 0x0100;
  }
};

struct EventState {
  ContextState* context = nullptr;
  unsigned int flags = 0;
  // Counts records; `done` is the count at the start of a wait or query that found it complete.
  std::atomic<std::uint64_t> records{0};
  std::atomic<std::uint64_t> done{0};

  std::atomic<bool> in_graphs{false};   // Launches of graphs record it.
  std::atomic<bool> captured{false};    // Its last record may stand in a graph.
  std::atomic<std::uint64_t> watch{0};  // Of the record that was last found unfinished.
  // Somebody asks whether it is done: its records are followed by fences from then on.
  std::atomic<bool> asked{false};
  RecordFence fence;

  // Nobody else records it: no other process, and no graph.
  bool ours() const { return (flags & CU_EVENT_INTERPROCESS) == 0 && !in_graphs.load(); }
  bool known_done() const { return ours() && done.load() == records.load(); }
  void reset() {
    records = 0;
    done = 0;
    in_graphs = false;
    captured = false;
    watch = 0;
    asked = false;
    fence.reset();
  }
};

struct PoolState {
  CUdevice device = 0;
  bool is_default = false;
  bool shareable = false;  // Made such that other processes may import it.
  bool imported = false;   // Another process's: the server has none of that name.
  // A file that stands for it has been made. Before that its pointers are nobody else's either.
  std::atomic<bool> exported{false};
  PoolTag tag{};  // Of those that processes share.
  // As commands name it.
  std::uint64_t name = 0;
  std::uint64_t bytes_max = 0;
  // Other devices that may use its memory: a bit each.
  std::atomic<std::uint64_t> accessors{0};
  // As the program has set them, by number: for a server that has to make the pool again.
  std::array<std::atomic<std::uint64_t>, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD + 1> attributes = {
      {0, 1, 1, 1, 0}};

  static constexpr std::array<std::uint64_t, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD + 1> kDefaults = {
      0, 1, 1, 1, 0};
  void reset() {
    is_default = shareable = imported = false;
    exported = false;
    tag = {};
    bytes_max = 0;
    accessors = 0;
    for (std::size_t i = 0; i < kDefaults.size(); ++i) attributes[i] = kDefaults[i];
  }
};

// A physical allocation of cuMemCreate.
struct AllocationState {
  std::uint64_t bytes = 0;
  std::uint64_t block_id = 0;
  CUmemAllocationProp properties{};
  std::atomic<std::uint32_t> references{0};  // cuMemCreate and cuMemRetainAllocationHandle.
  std::atomic<std::uint32_t> mappings{0};
  // With no reference left: a process that ended had released it, and not said so.
  std::atomic<bool> gone{false};

  void reset() {
    references = 0;
    mappings = 0;
    gone = false;
  }
};

// Safe from any thread.
class MemoryState {
 public:
  // `fence_patience`: as of Fences.
  MemoryState(Session& session, Duration fence_patience);
  MemoryState(const MemoryState&) = delete;
  MemoryState& operator=(const MemoryState&) = delete;

  // From the thread that reads the socket.
  bool on_host_call(std::uint64_t token, Bytes payload);
  void on_delivered(std::uint64_t delivery, bool dropped) { transfers_.on_delivered(delivery); }
  void on_lost();
  // Once lost: whether anything of the GPU's was still to reach the host.
  bool host_work_lost() const {
    // What was announced while on_lost() was at work is still here.
    return host_work_lost_.load() || transfers_.host_work_under_way();
  }
  // The session is about to go on in another process; nothing of before is expected any more.
  void on_recovered();
  // What streams and waits share with the server beside the program's memory.
  std::vector<SharedSlots::Shared> shared_areas();
  // Forgets everything that died with a context.
  void on_context_destroyed(ContextState& context);
  // Only default streams die with a green context; others are the program's to destroy.
  void on_green_destroyed(ContextState& context) EXCLUDES(mutex_);
  // Its own default streams end with it.
  void on_thread_ends(const void* thread) EXCLUDES(mutex_);

  MemoryMap& map() { return map_; }
  PinnedHeap& pinned() { return pinned_; }
  HostMirror& mirror() { return mirror_; }
  SharedMemory& shared() { return shared_; }
  // What was said about managed memory.
  cuda::ManagedRanges& managed() { return managed_; }
  // Of pinned(), where that is shared(): kernels and copies use the very memory, for the server,
  // asked in the calling thread's current context, maps it, too.
  CUresult add_shared(Memory memory);
  // Managed variables: memory here at the address that the server's driver chose for one, mirrored,
  // and its end. `owner`: the context that it goes with; 0: it has none.
  CUresult add_managed_variable(std::uint64_t address, std::uint64_t bytes, std::uint64_t owner,
                                CUdevice device) EXCLUDES(variables_mutex_);
  void remove_managed_variable(const Memory& memory) EXCLUDES(variables_mutex_);
  HostCallWorker& host_calls() { return host_calls_; }
  Transfers& transfers() { return transfers_; }
  Fences& fences() { return fences_; }
  Watches& watches() { return watches_; }
  StreamLoads& loads() { return loads_; }
  // Null where the server cannot map memory for programs.
  AddressSpace* reservable() { return reservable_.get(); }

  // Creates a stream in a context, which must be the calling thread's current one.
  CUresult make_stream(ContextState& context, unsigned int flags, int priority, CUstream& out);
  // An id that no stream of the session ever had.
  std::uint64_t next_stream_id() { return next_stream_id_.fetch_add(1); }
  // The id of a context's legacy stream (thread 0) or of a thread's own default stream.
  std::uint64_t default_stream_id(const ContextState& context, const void* thread) EXCLUDES(mutex_);

  // The pools of a device; null handle for a bad ordinal.
  CUmemoryPool default_pool(CUdevice device) const;
  CUmemoryPool current_pool(CUdevice device) const EXCLUDES(mutex_);
  void set_current_pool(CUdevice device, CUmemoryPool pool) EXCLUDES(mutex_);

  // Reservations of cuMemAddressReserve.
  struct Reservation {
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
  };
  void add_reservation(std::uint64_t base, std::uint64_t bytes) EXCLUDES(mutex_);
  // False unless exactly this was reserved.
  bool remove_reservation(std::uint64_t base, std::uint64_t bytes) EXCLUDES(mutex_);
  // The reservation that holds the whole range; 0 bytes if there is none.
  Reservation reservation_around(std::uint64_t base, std::uint64_t bytes) const EXCLUDES(mutex_);

  HandleTable<StreamState> streams;
  HandleTable<EventState> events;
  HandleTable<PoolState> pools;
  HandleTable<AllocationState> allocations;
  Images images;
  PeerAccess peers;

 private:
  Session& session_;
  MemoryMap map_;
  const wire::Window pinned_window_;
  PinnedHeap pinned_;
  HostMirror mirror_;
  cuda::ManagedRanges managed_;
  SharedMemory shared_;
  HostCallWorker host_calls_;
  Fences fences_;
  Watches watches_;
  StreamLoads loads_;
  Transfers transfers_;
  std::unique_ptr<AddressSpace> reservable_;
  std::atomic<std::uint64_t> next_stream_id_{1};
  std::atomic<bool> host_work_lost_{false};
  std::vector<CUmemoryPool> default_pools_;
  Mutex variables_mutex_;
  FixedPages variable_pages_ GUARDED_BY(variables_mutex_);
  mutable Mutex mutex_;
  std::vector<CUmemoryPool> current_pools_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::uint64_t> reservations_ GUARDED_BY(mutex_);
  std::map<std::pair<std::uint64_t, const void*>, std::uint64_t> default_stream_ids_
      GUARDED_BY(mutex_);
};

}  // namespace flyt::client
