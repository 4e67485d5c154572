// Deliveries: copies to the host, from the GPU through staging memory to the client.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/annotations.h"
#include "server/request.h"
#include "server/streams/event_pool.h"
#include "server/streams/lookout.h"
#include "server/transfers/box.h"
#include "server/transfers/lanes.h"
#include "server/transfers/pinned_memory.h"

namespace flyt::server {

class Session;

// Where a box begins in an array: byte x of row y in slice z.
struct ArrayPlace {
  CUarray array = nullptr;  // Null: the box is in device memory.
  std::uint64_t x = 0;
  std::uint64_t y = 0;
  std::uint64_t z = 0;
};

// What a delivery reads, in which stream, for whom.
struct DeliveryJob {
  std::uint32_t context = 0;
  std::uint64_t context_handle = 0;  // Another context may get its index.
  CUstream stream = nullptr;
  // Keeps the stream alive while a worker still issues into it; may be null.
  std::shared_ptr<Attachment> stream_owner;
  Box box;  // Of an array: without gaps, and its address means nothing.
  ArrayPlace array;
  std::shared_ptr<Attachment> array_owner;  // Keeps the array alive.
  std::uint64_t delivery = 0;               // The client's name for it.

  BoxCursor cursor() const;
};

// A finished piece is sent before any reply that could tell the client that it is finished:
// send_finished() is called before every reply. Safe from any thread unless said otherwise.
class Deliveries final : public Lookout::Subject {
 public:
  Deliveries(Session& session, EventPool& events, Staging& staging, Lookout& lookout, Lanes& lanes)
      : session_(session), events_(events), staging_(staging), lookout_(lookout), lanes_(lanes) {}
  Deliveries(const Deliveries&) = delete;
  Deliveries& operator=(const Deliveries&) = delete;

  // A copy that nobody waits for: issues all of it now, or puts the rest back. If staging memory is
  // short it waits here until the client has taken earlier data, unless a stream may stand until
  // the client is heard. Main thread, with the job's context current.
  CUresult post(Request& request, const DeliveryJob& job);

  // A copy that the client waits for. Answers the request when everything was sent. Main thread,
  // with the job's context current.
  void answer(Request request, const DeliveryJob& job);

  // Sends every posted piece that the GPU has finished; when it returns, whatever was finished
  // before the call has been sent, by this thread or another.
  // `then`: what the calling thread sends next.
  void send_finished(rpc::Then then = rpc::Then::kAnything) EXCLUDES(send_mutex_, mutex_);

  // Whether a copy is under way whose next pieces a worker has yet to ask for in that stream. A
  // capture would take them, and the staging memory's addresses with them. Main thread.
  bool issues_into(CUstream stream) const EXCLUDES(mutex_);

  // Posted pieces that are not sent yet.
  std::uint64_t pending() const override { return pending_.load(std::memory_order_acquire); }
  void look(Look) override { send_finished(); }

 private:
  // Pieces of one waiting copy on their way at the same time.
  static constexpr std::size_t kPiecesInFlight = 8;
  // Smaller ones are not worth a lane.
  static constexpr std::uint64_t kLaneBytesMin = 256 * kKiB;
  // The client is told at the latest when so much has gone to lanes.
  static constexpr std::uint64_t kToldBytesMax = 8 * kMiB;

  // A part of a delivery that was given to lanes.
  struct ByLanes {
    std::uint64_t delivery = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  struct Piece {
    std::uint64_t delivery = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    Staging::Slot slot;
    std::shared_ptr<Fence> fence;
    std::uint64_t number = 0;  // Of a posted one: their order.
  };
  // A driver may give the handle of a stream that was destroyed away while the stream's work goes
  // on. So the owner tells streams apart, whom nothing here keeps alive.
  struct StreamKey {
    std::uint32_t context = 0;
    CUstream stream = nullptr;
    std::weak_ptr<Attachment> owner;  // Of default streams: none.
    bool operator<(const StreamKey& other) const;
  };

  // As long as it lives, or until end(), issues_into() a stream.
  class Issuing {
   public:
    Issuing(Deliveries& deliveries, CUstream stream);
    ~Issuing() { end(); }
    Issuing(const Issuing&) = delete;
    Issuing& operator=(const Issuing&) = delete;
    void end();

   private:
    Deliveries& deliveries_;
    const CUstream stream_;
    bool ended_ = false;
  };

  // Starts the DMA of one piece into `slot`.
  CUresult issue(const DeliveryJob& job, const BoxCursor::Piece& piece, Piece& out);
  // The same on a worker, for a stream that may have died with its context meanwhile.
  CUresult issue_on_worker(const DeliveryJob& job, const BoxCursor::Piece& piece, Piece& out);
  Staging::Slot wait_for_slot(const DeliveryJob& job, std::uint64_t bytes, bool must_not_wait);
  // Sends a finished piece and gives its slot back. What goes by lanes is added to `by_lanes`,
  // which tell() must be called for before a reply or anything else of that delivery is sent;
  // nothing is, where the piece must not overtake what was sent before.
  void deliver(const Piece& piece, ByLanes& by_lanes, rpc::Then then, bool in_order);
  void tell(ByLanes& by_lanes);
  void finish_small(Request request, Piece piece);
  // The whole of a large waiting copy, on a worker.
  CUresult run_pipeline(const DeliveryJob& job);
  // Takes a finished piece of any stream, and how its copy went. Pieces for the same memory of the
  // client's may stand in several streams that wait for each other: of two that are finished the
  // one that was posted first comes first.
  bool take_finished(Piece& piece, CUresult& result) EXCLUDES(mutex_);

  Session& session_;
  EventPool& events_;
  Staging& staging_;
  Lookout& lookout_;
  Lanes& lanes_;
  // Held while pieces are taken and sent, so that nobody replies between the two.
  Mutex send_mutex_;
  mutable Mutex mutex_;
  using Posted = std::map<StreamKey, std::deque<Piece>>;
  Posted posted_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Posted::iterator> fronts_ GUARDED_BY(mutex_);  // By the front's number.
  std::uint64_t next_number_ GUARDED_BY(mutex_) = 0;
  std::multiset<CUstream> issuing_ GUARDED_BY(mutex_);  // A stream for each waiting copy.
  std::atomic<std::uint64_t> pending_{0};
};

}  // namespace flyt::server
