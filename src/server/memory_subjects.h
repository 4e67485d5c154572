// MemorySubjects: what a session keeps about memory, copies, streams and events.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/annotations.h"
#include "server/lease/sm_part.h"
#include "server/memory/arena.h"
#include "server/memory/driver_blocks.h"
#include "server/memory/host_mirror.h"
#include "server/memory/images.h"
#include "server/memory/pools.h"
#include "server/memory/reaper.h"
#include "server/memory/virtual_memory.h"
#include "server/memory/windows.h"
#include "server/recovery/saved_arrays.h"
#include "server/streams/ended_streams.h"
#include "server/streams/event_pool.h"
#include "server/streams/host_calls.h"
#include "server/streams/lookout.h"
#include "server/streams/stream_depths.h"
#include "server/streams/watches.h"
#include "server/transfers/box.h"
#include "server/transfers/deliveries.h"
#include "server/transfers/holds.h"
#include "server/transfers/lanes.h"
#include "server/transfers/pinned_memory.h"

namespace flyt::server {

// A driver stream or event that lives as long as anything here uses it: a client may destroy one
// while another of its threads waits for it.
class StreamOwner final : public Attachment {
 public:
  // `part`: that in which it was made, if others may take its place.
  StreamOwner(const driver::Table& driver, std::uint32_t context, CUstream stream,
              std::shared_ptr<SmPart> part = {})
      : driver_(driver), context_(context), part_(std::move(part)), stream_(stream) {}
  ~StreamOwner() override {
    if (CUstream stream = stream_.load()) driver_.cuStreamDestroy_v2(stream);
  }
  std::uint32_t context() const { return context_; }
  // Null once the context has taken the stream with it.
  CUstream stream() const { return stream_.load(); }
  void abandon() { stream_.store(nullptr); }

 private:
  const driver::Table& driver_;
  const std::uint32_t context_;
  const std::shared_ptr<SmPart> part_;
  std::atomic<CUstream> stream_;
};

class EventOwner final : public Attachment {
 public:
  EventOwner(const driver::Table& driver, std::uint32_t context, CUevent event, unsigned int flags)
      : driver_(driver), context_(context), event_(event), flags_(flags) {}
  ~EventOwner() override {
    if (CUevent event = event_.load()) driver_.cuEventDestroy_v2(event);
  }
  std::uint32_t context() const { return context_; }
  // Null once the context has taken the event with it.
  CUevent event() const { return event_.load(); }
  unsigned int flags() const { return flags_; }
  void abandon() { event_.store(nullptr); }
  // Nodes of graphs know the driver's event: no other takes its place any more.
  void note_in_graphs() const { in_graphs_.store(true); }
  bool in_graphs() const { return in_graphs_.load(); }

 private:
  const driver::Table& driver_;
  const std::uint32_t context_;
  std::atomic<CUevent> event_;
  const unsigned int flags_;
  mutable std::atomic<bool> in_graphs_{false};
};

// Belongs to one Session; members say which threads may use them.
class MemorySubjects {
 public:
  explicit MemorySubjects(Session& owner);
  ~MemorySubjects();
  MemorySubjects(const MemorySubjects&) = delete;
  MemorySubjects& operator=(const MemorySubjects&) = delete;

  // Main thread, once a turn: lets go of what the GPU has passed.
  void poll();
  // Main thread, when the endpoint has no chunk to receive into: frees some, if it can.
  void reclaim();
  // With the context current, before it is destroyed or reset: waits for its work; under
  // Session::alone(), forgets all that dies with it; and then forgets what waits look at.
  void before_context_destroy();
  void on_context_destroy(std::uint32_t context);
  void after_context_destroy(std::uint32_t context);
  // The same two for a green context, from which only its streams go.
  void on_green_destroy(std::uint32_t context);
  void after_green_destroy(std::uint32_t context);
  // With `context`, which is new, current: registers host memory ahead of the copies that want it.
  void on_context_made(CUcontext context);
  // The driver has destroyed a context, and with it what was registered there.
  void on_context_gone(CUcontext context);
  // The session ends: lets go whatever waits for the client.
  void release_all() {
    lanes.shut_down();
    host_calls.release_all();
  }

  // Gives the driver and the lease back whatever of a device waits for the GPU, fills pools or lies
  // idle, here and in the lease's other sessions. Not on the main thread: it may take as long as
  // the GPU does.
  void make_room(CUdevice device);
  // Until the programs that have ended by now have no memory, for kLeavingMax at most. Not on the
  // main thread.
  static void await_leaving();
  // The same with what lies idle here alone: it waits for nobody.
  void drop_idle(CUdevice device);
  // Main thread, once a turn: the same, when another session has asked.
  void heed_shortages(bool quiet);

  // Frees what cuMemAlloc or a pool gave, once all work of its context (of a pool's memory: of
  // `context`) is done. False if it is nothing that can be freed.
  bool free_later(std::uint64_t address, std::uint32_t context);

  // Has a worker register memory for a stock that runs short.
  void restock_later(PinnedStock& stock);
  // As prepare_copies. None: there is no such kind. On a worker.
  std::optional<std::uint64_t> prepare_copies(std::uint32_t kind, std::uint64_t wanted);
  // Whether host memory for copies is there that none has had for a while, beyond the reserves.
  bool keeps_buffers();
  // Has a worker give it back, until a command comes. While the GPU has nothing to do.
  void give_buffers_back();

  // Answers the request when all that is in the stream now is done. Main thread.
  void answer_at_end_of(CUstream stream, Request request);

  // From now on `accessor` may use what is mapped of `owner`, or no longer; counted. The driver
  // knows of memory that it has placed itself.
  void set_access(CUdevice owner, CUdevice accessor, bool allowed);

  // Copies and fills reach the memory of every device, whatever peers were enabled. A driver wants
  // mapped memory to be open to the device that does the work, so what lies around `address` is
  // opened to that of the current context, for good, where the two reach each other.
  void open_to_current(std::uint64_t address) EXCLUDES(opened_mutex_);

  // Whether all bytes of a box may be used by the client's commands.
  bool allowed(const Box& box) const;
  // Of a copy or fill in that stream, whose bytes were allowed. Where the stream is captured a
  // graph will do it later: false if the session has too much of what graphs name.
  bool may_be_captured(CUstream stream, const Box& box);

  Session& session;
  EventPool events;
  EndedStreams ended_streams;
  DriverBlocks blocks;
  Arena arena;
  Reaper reaper;
  VirtualMemory virtual_memory;
  Pools pools;
  Lanes lanes;  // Before what holds what they have received.
  Holds holds;
  Lookout lookout;
  Deliveries deliveries;
  Watches watches;
  HostCalls host_calls;
  HostMirror host_mirror;
  const std::shared_ptr<Images> images;
  SavedArrays saved_arrays;
  StreamDepths depths;

 private:
  std::array<PinnedStock*, 3> stocks();
  // Makes some context current that has memory of its own; none: there is none.
  std::optional<CUcontext> enter_any();

  int devices_ = 0;
  Mutex opened_mutex_;
  // Owner and accessor, by open_to_current().
  std::set<std::pair<CUdevice, CUdevice>> opened_ GUARDED_BY(opened_mutex_);
  std::uint32_t shortages_ = 0;  // Those that were heeded. Main thread, as the next.
  bool quiet_ = false;           // What lies idle is given up without a shortage.
};

}  // namespace flyt::server
