// Transfers: the program's copies, as commands.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "client/code/code_turns.h"
#include "client/streams/host_call_worker.h"
#include "client/transfers/box_copy.h"
#include "client/transfers/prepared.h"
#include "client/transfers/staging.h"
#include "client/transfers/upload_room.h"
#include "cuda/types.h"
#include "rpc/channel.h"

namespace flyt::client {

class Session;
class MemoryMap;

// When a copy may return.
enum class Waiting : std::uint8_t {
  kStaged,  // The host memory may be used again. (Copies into it: when they are done.)
  kStream,  // As kStaged, unless the memory is page-locked: then it is in the stream's hands.
  kSource,  // As kStream, but the source has been read, and is as it is at the call.
};

// Device ranges have been checked. Safe from any thread; each call is one of the calling thread's
// current context.
class Transfers {
 public:
  // `patience`: as of Fences and Staging.
  Transfers(Session& session, HostCallWorker& host_calls, Duration patience)
      : session_(session),
        host_calls_(host_calls),
        staging_(session, patience),
        prepared_(session) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Before anything else about a copy is looked at, as natively: what captures say to it. One into
  // a captured stream becomes part of `graph`, 0: it is done.
  CUresult look_for_captures(CUstream stream, Waiting waiting, std::uint64_t& graph);
  // A checked copy, whatever its two ends are. Flat copies are boxes of one row.
  CUresult run(const BoxCopy& copy, CUstream stream, Waiting waiting, std::uint64_t graph)
      EXCLUDES(mutex_);

  // A posted copy has arrived, or never will.
  void on_delivered(std::uint64_t delivery) EXCLUDES(mutex_);
  void on_lost() EXCLUDES(mutex_);
  // Other copies may arrive again.
  void on_recovered() EXCLUDES(mutex_);
  std::vector<SharedSlots::Shared> shared_areas() { return staging_.shared_areas(); }
  void on_context_destroyed(std::uint64_t context) EXCLUDES(later_mutex_);
  // Whether a posted copy may still write to [base, base + bytes).
  bool arriving(std::uint64_t base, std::uint64_t bytes) const EXCLUDES(mutex_);
  // From now on no posted copy writes to the range, arrived or not: its context is gone.
  void forget_arrivals(std::uint64_t base, std::uint64_t bytes) EXCLUDES(mutex_);
  // Waits until no posted copy writes to the range any more.
  void await_arrivals(std::uint64_t base, std::uint64_t bytes) EXCLUDES(mutex_);
  // A stream of that context is done with what was sent into it, or is destroyed.
  void note_done(std::uint64_t context, CUstream stream) { room_.give(context, stream); }
  void on_thread_ends() { room_.on_thread_ends(); }
  // Whoever has code loaded or unloaded holds this meanwhile.
  CodeTurns::Turn code_turn() { return code_turns_.load(); }
  // Before a context ends, which waits for its streams: the copies for which they stand are made.
  void await_late_copies() { static_cast<void>(code_turns_.load()); }
  // Whether anything that the GPU has still to reach can write host memory.
  bool host_writes_pending() const EXCLUDES(mutex_);
  // The same without what graphs may do when they are launched.
  bool host_work_under_way() const EXCLUDES(mutex_);

 private:
  struct Range {
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    std::uint64_t staged = 0;  // Of the server's memory that it takes.
  };

  // The posted copies that may still write to a range.
  std::vector<std::uint64_t> arrivals(std::uint64_t base, std::uint64_t bytes) const
      REQUIRES(mutex_);

  CUresult start(const BoxCopy& copy, CUstream stream, Waiting waiting) EXCLUDES(mutex_);
  CUresult to_device(const BoxCopy& copy, CUstream stream, Waiting waiting);
  CUresult to_host(const BoxCopy& copy, CUstream stream, Waiting waiting);
  CUresult host_to_host(const BoxCopy& copy, CUstream stream);
  CUresult capture_in_graph(const BoxCopy& copy, CUstream stream, std::uint64_t graph);
  CUresult on_device(const BoxCopy& copy, CUstream stream);

  // Sends the bytes as they are now.
  CUresult capture(const BoxCopy& copy, CUstream stream);
  // Before `bytes` are sent into a stream which the server keeps until the GPU has read them: waits
  // for the stream if it keeps too many.
  CUresult make_room(std::uint64_t bytes, CUstream stream);
  // The same for a block that one of so many lanes has sent, while the session is kept steady.
  // False: it is lost.
  bool make_room_once(const rpc::SentBlock& block, const UploadRoom::LaneRoom& room,
                      CUstream stream, CUresult& result);
  // How many blocks may be under way if the server prepares what a copy of so many bytes takes;
  // `ahead`: before they are named.
  UploadRoom::LaneRoom prepare_lanes(unsigned lanes, std::uint64_t bytes, std::size_t& ahead);
  // Whether the server has memory ready for a posted copy to the host.
  bool prepare_to_host(const BoxCopy& copy) EXCLUDES(mutex_);
  // Sends a command whose last field is data that the server keeps.
  template <class Command>
  CUresult post_kept(const Command& command, Bytes data);
  // By way of the session's lanes. False: they do not take it.
  bool send_by_lanes(std::uint64_t to, std::uint64_t from, std::uint64_t bytes, CUstream stream,
                     CUresult& result);
  // Large copies go by lanes, where a session has some: how many a copy may use.
  unsigned lanes_for(std::uint64_t bytes);
  CUresult send_flat(std::uint64_t to, std::uint64_t from, std::uint64_t bytes, CUstream stream);
  // The same, and waits until the bytes are there.
  CUresult send_flat_and_wait(std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                              CUstream stream);
  CUresult send_rows(const BoxCopy& copy, std::uint64_t slice, CUstream stream);
  // One slice into an array.
  CUresult send_to_array(const BoxCopy& copy, std::uint64_t slice, CUstream stream);
  // Sends the bytes as they will be when the stream comes to this place.
  CUresult capture_later(const BoxCopy& copy, CUstream stream);
  CUresult post_to_host(const BoxCopy& copy, CUstream stream) EXCLUDES(mutex_);
  bool result_to_host(const BoxCopy& copy, CUstream stream, CUresult& result);
  CUresult wait_to_host(const BoxCopy& copy, CUstream stream);
  CUresult deliver_to_host(const BoxCopy& copy, CUstream stream);
  // One try; false: the session was lost meanwhile.
  bool try_to_deliver(const BoxCopy& copy, CUstream stream, CUresult& result);
  bool try_to_post(const BoxCopy& copy, CUstream stream) EXCLUDES(mutex_);
  std::uint64_t expect_posted(const BoxCopy& copy) EXCLUDES(mutex_);
  void give_up(std::uint64_t delivery) EXCLUDES(mutex_);

  Session& session_;
  HostCallWorker& host_calls_;
  Staging staging_;
  UploadRoom room_;
  Prepared prepared_;
  CodeTurns code_turns_;
  mutable Mutex mutex_;
  Condition arrived_;
  std::map<std::uint64_t, Range> arriving_ GUARDED_BY(mutex_);
  std::uint64_t staged_ GUARDED_BY(mutex_) = 0;  // The sum of what arrives.
  bool lost_ GUARDED_BY(mutex_) = false;
  // The stream that carries what capture_later() sends, by context.
  Mutex later_mutex_;
  std::map<std::uint64_t, CUstream> later_streams_ GUARDED_BY(later_mutex_);
};

}  // namespace flyt::client
