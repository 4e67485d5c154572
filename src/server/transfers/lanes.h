// Lanes: a session's further connections, for bulk data alone.
//
// A lane's receiver fills pinned slots that are its own; a command on the main connection says what
// is to become of each, and the slot goes back when the GPU has passed the copy. A lane without
// free slots is not read, and only the client's sender of that lane stands.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"
#include "rpc/buffer_pool.h"
#include "rpc/lane_stream.h"
#include "rpc/thread.h"
#include "server/transfers/pinned_memory.h"
#include "transport/transport.h"
#include "wire/hello.h"

namespace flyt::server {

class Lanes;
class Session;

// One lane. Safe from any thread, but for what belongs to the main thread.
class Lane final : public rpc::BufferPool {
 public:
  // Parts of copies to the host that wait to be sent, so that the link does not wait for the next.
  static constexpr std::size_t kWaitingMax = 2;

  Lane(Lanes& lanes, std::unique_ptr<transport::Connection> connection, wire::LanePacking packing);
  // False: there are no threads to be had.
  bool start();
  // After shut_down().
  void join();

  // A received block that a command names. Main thread.
  enum class Found : std::uint8_t { kThere, kNotYet, kNever };
  Found take(std::uint64_t number, std::uint32_t bytes, rpc::ChunkRef& chunk) EXCLUDES(mutex_);
  // The main thread waits for a block of this lane.
  bool awaited() const { return awaited_.load(std::memory_order_relaxed); }

  struct Part {
    std::uint64_t delivery = 0;
    std::uint64_t offset = 0;
    Bytes data;
    std::function<void()> sent;  // Called when the data may be overwritten; not if that is never.
  };
  // False if there is no room.
  bool add(Part& part) EXCLUDES(mutex_);
  std::size_t waiting() const EXCLUDES(mutex_);

  rpc::Chunk* acquire() override EXCLUDES(mutex_);
  void recycle(rpc::Chunk& chunk) override EXCLUDES(mutex_);
  void shut_down() EXCLUDES(mutex_);

 private:
  struct Block {
    std::uint64_t number = 0;
    std::uint32_t bytes = 0;
    rpc::ChunkRef chunk;
  };

  void receive();
  // Waits for a slot; null when the lane is shut down.
  rpc::ChunkRef wait_for_slot() EXCLUDES(mutex_);
  void send();
  bool next(Part& part) EXCLUDES(mutex_);

  Lanes& lanes_;
  const std::unique_ptr<transport::Connection> connection_;
  const wire::LanePacking packing_;
  std::atomic<bool> awaited_{false};
  mutable Mutex mutex_;
  Condition slot_free_;
  Condition to_send_;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::uint64_t taken_ GUARDED_BY(mutex_) = 0;  // Blocks that commands have named.
  std::size_t slots_ GUARDED_BY(mutex_) = 0;    // In use.
  std::vector<std::unique_ptr<rpc::Chunk>> chunks_ GUARDED_BY(mutex_);  // By the slot's index.
  std::deque<Block> received_ GUARDED_BY(mutex_);                       // Ends before its chunks.
  std::deque<Part> parts_ GUARDED_BY(mutex_);
  rpc::Thread receiver_;
  rpc::Thread sender_;
};

// Belongs to one Session; safe from any thread, but for what belongs to the main thread.
class Lanes {
 public:
  // The slots of all lanes of a session together, of kLaneBlockBytesMax each.
  static constexpr std::size_t kSlotsMax = wire::kLaneBlocksKept;
  static constexpr std::size_t kSlotsReserve = 16;

  explicit Lanes(Session& session);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Takes in a connection whose hello has been read and was for this session; it is welcomed, or
  // refused with a reason.
  void admit(std::unique_ptr<transport::Connection> connection, const wire::ClientHello& hello)
      EXCLUDES(mutex_);
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }

  // Lane::take(), of a lane that the client names. Main thread.
  Lane::Found take(std::uint32_t lane, std::uint64_t number, std::uint32_t bytes,
                   rpc::ChunkRef& chunk);
  // The main thread waits for a block: it will be woken.
  bool awaited() const;

  // Sends a part of a copy to the host, waiting for room. False, and `sent` is not called: there is
  // no lane, or the session is over.
  bool send(Lane::Part part) EXCLUDES(mutex_);

  // The session is over: every lane's threads end.
  void shut_down() EXCLUDES(mutex_);
  // The same, and waits for them. What was received may still be held.
  void stop();

  PinnedStock& stock() { return stock_; }
  Session& session() { return session_; }
  // What one lane may take.
  std::size_t quota() const;
  void lost(std::string_view what) EXCLUDES(mutex_);
  void made_room() EXCLUDES(mutex_);

 private:
  // As admit(). False: it has no threads, and the session has to end.
  bool take_in(std::unique_ptr<transport::Connection> connection, const wire::ClientHello& hello)
      EXCLUDES(mutex_);

  Session& session_;
  PinnedStock stock_;
  Mutex mutex_;
  Condition room_;
  std::array<std::unique_ptr<Lane>, wire::kLanesMax> owned_ GUARDED_BY(mutex_);
  std::array<std::atomic<Lane*>, wire::kLanesMax> lanes_{};
  std::atomic<unsigned> count_{0};
  std::atomic<bool> ended_{false};
};

// Takes in the lanes that the server's parent passes on to a session.
class LaneDoor {
 public:
  // `channel`: where connections come from; not valid: none do.
  LaneDoor(Fd channel, const wire::SessionToken& token, Lanes& lanes);
  ~LaneDoor();
  LaneDoor(const LaneDoor&) = delete;
  LaneDoor& operator=(const LaneDoor&) = delete;

 private:
  void run();

  const Fd channel_;
  const wire::SessionToken token_;
  Lanes& lanes_;
  rpc::Thread thread_;
};

}  // namespace flyt::server
