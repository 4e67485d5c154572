// Moves: a session's streams go to other multiprocessors while the program runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "cuda/types.h"
#include "server/handles.h"
#include "server/lease/beginnings.h"
#include "server/lease/sm_grant.h"
#include "server/lease/sm_part.h"
#include "server/streams/event_pool.h"

namespace flyt::server {

class Session;
class StreamOwner;

// The lease's groups have changed: a thread of its own (ResizeWorker) makes a part of them ahead,
// and the main thread puts it in the place of the present one between two commands. Each stream
// gets a twin in the new part that begins behind what the old one has to do; events, memory and
// code are the primary context's and stay. docs/leases.md tells what programs see of it.
class Moves {
 public:
  // To make a part, and to end one, may wait for all that the GPU has to do; groups that a lease
  // had before are there at once.
  static constexpr std::size_t kKeptMax = 8;

  explicit Moves(Session& session);
  ~Moves();
  Moves(const Moves&) = delete;
  Moves& operator=(const Moves&) = delete;

  // What the primary context of device 0 is confined to when it is made. Any thread.
  SmGrant grant() const EXCLUDES(mutex_);
  SmParts& parts() { return parts_; }

  // ResizeWorker: the lease's grant is another one. When the session has moved, the board is told.
  void want(std::uint32_t version, const SmGrant& grant) EXCLUDES(mutex_);
  // ResizeWorker: ends earlier parts that have nothing to do any more. What is left of them: work,
  // or only graphs that were made in them.
  enum class Left : std::uint8_t { kNothing, kKept, kSome };
  Left tidy() EXCLUDES(mutex_);

  // A move waits for a moment at which it changes nothing for the program. Any thread.
  bool pending() const { return pending_.load(std::memory_order_acquire); }
  // Main thread, once a turn, under Session::use(): moves if it can.
  void poll() EXCLUDES(mutex_);

  // As long as somebody has it, no stream moves: for who puts work into a stream on a worker that
  // was looked up before. Any thread.
  std::shared_ptr<void> placing() { return placing_; }
  // The part in which the primary context of device 0 works; null: it has none, or cannot move.
  std::shared_ptr<SmPart> part() const EXCLUDES(mutex_);
  // The same for a context by its handle's index; null for others than that primary one.
  std::shared_ptr<SmPart> part_of(std::uint32_t context) const EXCLUDES(mutex_);
  // A primary context of device 0 was made in that part; it ends. Under Session::endings().
  void begin(std::uint32_t context, std::shared_ptr<SmPart> part) EXCLUDES(mutex_);
  void end() EXCLUDES(mutex_);

  // cuStreamQuery, but for streams that are busy only with having moved. Under Session::use().
  CUresult query(CUstream stream);
  // The client learns that work is done. Any thread.
  void note_done() { beginnings_.note_done(); }

  // A program's stream ends. Main thread, before it does.
  void note_end(std::uint32_t context, CUstream stream) EXCLUDES(mutex_);
  // The ends of work in earlier parts that no stream of the present one waits for. Any thread.
  std::vector<std::shared_ptr<Fence>> left_behind() EXCLUDES(mutex_);
  // The program may have work in the default stream that others have to wait for. Any thread.
  void note_default_stream() { default_stream_used_.store(true, std::memory_order_relaxed); }
  // A stream waits for a word that other work has to write. Any thread.
  void note_word_wait() { waits_for_words_.store(true, std::memory_order_relaxed); }
  // The program has green contexts of its own: it sees to its graphs' multiprocessors itself.
  void note_green() { greens_.store(true, std::memory_order_relaxed); }
  bool greens() const { return greens_.load(std::memory_order_relaxed); }

 private:
  struct Wanted {
    std::uint32_t version = 0;
    std::shared_ptr<SmPart> part;
  };
  // A stream and what takes its place.
  struct Twin {
    std::uint64_t handle = 0;  // 0: a thread's default stream, number `thread`.
    std::uint32_t thread = 0;
    std::shared_ptr<StreamOwner> old;
    std::shared_ptr<StreamOwner> fresh;
    std::shared_ptr<Fence> end;    // Of what the old one has to do.
    std::shared_ptr<Fence> begun;  // Where that is, in the new one.
  };
  // What an earlier part still has to do.
  struct Earlier {
    std::shared_ptr<SmPart> part;
    std::vector<std::shared_ptr<Fence>> ends;
    Instant since;
  };

  void attempt() EXCLUDES(mutex_);
  bool may_move(const Handles::Entry& primary) const;
  bool move(const Handles::Entry& primary, const std::shared_ptr<SmPart>& part);
  std::vector<Twin> list_streams(std::uint32_t context);
  CUresult mark_ends(std::uint32_t context, std::vector<Twin>& twins, std::shared_ptr<Fence>& all);
  CUresult make_twins(std::uint32_t context, const std::shared_ptr<SmPart>& part,
                      std::vector<Twin>& twins);
  std::shared_ptr<Fence> begin_behind(std::uint32_t context, CUstream stream, const Fence& end,
                                      CUresult& result);
  void note_beginnings(const std::vector<Twin>& twins, const std::shared_ptr<Fence>& all,
                       const std::shared_ptr<Fence>& all_begun);
  void take_over(const Handles::Entry& primary, const std::shared_ptr<SmPart>& part,
                 std::vector<Twin>& twins);
  void retire(const std::shared_ptr<SmPart>& old, const std::vector<Twin>& twins,
              std::shared_ptr<Fence> all) EXCLUDES(mutex_);
  std::shared_ptr<SmPart> find_or_make(CUcontext primary, const SmGrant& grant) EXCLUDES(mutex_);
  // One that was used before, of the same groups; null if there is none.
  std::shared_ptr<SmPart> find_kept(const SmGrant& grant) REQUIRES(mutex_);
  void keep(const std::shared_ptr<SmPart>& part) REQUIRES(mutex_);
  void let_go(std::shared_ptr<SmPart> part) REQUIRES(mutex_);
  std::vector<std::shared_ptr<SmPart>> take_idle() EXCLUDES(mutex_);
  bool nobody_inside();
  void tell_board(std::uint32_t version);  // Main thread.

  Session& session_;
  SmParts parts_;
  const std::shared_ptr<void> placing_ = std::make_shared<int>();
  std::atomic<bool> pending_{false};
  std::atomic<bool> default_stream_used_{false};
  std::atomic<bool> waits_for_words_{false};
  std::atomic<bool> greens_{false};
  Beginnings beginnings_;
  mutable Mutex mutex_;
  SmGrant grant_ GUARDED_BY(mutex_);
  Wanted wanted_ GUARDED_BY(mutex_);
  std::uint32_t context_ GUARDED_BY(mutex_) = 0;  // The primary context's handle index.
  std::shared_ptr<SmPart> part_ GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<SmPart>> made_ GUARDED_BY(mutex_);    // In that context.
  std::vector<std::shared_ptr<SmPart>> kept_ GUARDED_BY(mutex_);  // Used last at the end.
  std::vector<Earlier> earlier_ GUARDED_BY(mutex_);
  // Parts of which nothing runs any more, or never did.
  std::vector<std::shared_ptr<SmPart>> idle_ GUARDED_BY(mutex_);
  // Of streams that the program has ended, in the present part and in earlier ones.
  std::vector<std::shared_ptr<Fence>> ended_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Fence>> left_behind_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
