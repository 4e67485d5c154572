// StreamDepths: how much work waits in each stream, so that the driver's queue is never full while
// the stream waits for the client.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "cuda/types.h"
#include "server/streams/event_pool.h"

namespace flyt::server {

class Session;

// Counts roughly, by an event every now and then. Belongs to the main thread, unless
// said otherwise.
class StreamDepths {
 public:
  // A driver takes about a thousand launches a stream and then makes the caller wait.
  static constexpr std::size_t kMarkEvery = 128;
  static constexpr std::size_t kMarksMax = 6;

  StreamDepths(Session& session, EventPool& events) : session_(session), events_(events) {}

  // One more operation was put into a stream; its context is current.
  void count(std::uint32_t context, CUstream stream);
  // Some stream holds kMarkEvery * kMarksMax operations or more that are not done. May make another
  // context current; without use() held.
  bool full();
  // The same with use() held.
  bool full_inside();
  // More than kMarkEvery operations wait in some stream. May make another context current; with
  // use() held.
  bool queued() { return deeper_than(1); }
  // A stream ends, or another takes its place: its address may come back as another one's. Main
  // thread, or under Session::alone(); as the next.
  void forget(CUstream stream);
  void forget_context(std::uint32_t context);

 private:
  // With the context in which the commands were executed, which default streams need.
  using Key = std::pair<CUstream, std::uint32_t>;
  struct Depth {
    std::size_t unmarked = 0;
    std::deque<std::shared_ptr<Fence>> marks;
  };
  // Forgets marks that the GPU has passed.
  static void prune(Depth& depth);
  bool deeper_than(std::size_t marks);

  Session& session_;
  EventPool& events_;
  std::map<Key, Depth> depths_;                          // Of streams that live.
  std::map<Key, Depth>::iterator last_ = depths_.end();  // That of the last operation.
  bool maybe_full_ = false;
};

}  // namespace flyt::server
