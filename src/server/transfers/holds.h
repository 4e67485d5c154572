// Holds: received bytes that copies to the device still read.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "rpc/buffer_pool.h"
#include "server/streams/event_pool.h"

namespace flyt::server {

class Session;

// A copy reads the very chunk that its command was received into, so the chunk must stay until the
// GPU has passed the copy. Neighbouring copies of one stream share a fence. Safe from any thread:
// copies are held by the main thread, and a worker that destroys a context seals.
class Holds {
 public:
  Holds(Session& session, EventPool& events) : session_(session), events_(events) {}
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  // Keeps `chunk` until what has been issued in `stream` up to now is done. The context must be
  // current.
  void hold(std::uint32_t context, CUstream stream, const rpc::ChunkRef& chunk, std::uint64_t bytes)
      EXCLUDES(mutex_);
  // Fences what is held so far. Before a stream dies, and when chunks run short. Makes the context
  // of the held copies current.
  void seal() EXCLUDES(mutex_);
  // Lets go of what the GPU has passed. Returns whether anything is still held.
  bool poll() EXCLUDES(mutex_);

 private:
  // One fence for that many bytes at most, so that chunks come back steadily.
  static constexpr std::uint64_t kBatchBytesMax = 2 * kMiB;

  struct Batch {
    std::uint32_t context = 0;
    CUstream stream = nullptr;
    std::uint64_t bytes = 0;
    std::vector<rpc::ChunkRef> chunks;
    std::shared_ptr<Fence> fence;
  };

  void seal_locked() REQUIRES(mutex_);

  Session& session_;
  EventPool& events_;
  Mutex mutex_;
  Batch open_ GUARDED_BY(mutex_);
  std::deque<Batch> sealed_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
