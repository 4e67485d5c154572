// Lanes: the client's further connections of a session, for bulk data alone.
//
// They are made with the first large copy. Copies to the server are cut into blocks, which each
// lane takes and sends as fast as its link takes them; copies from the server are read by each lane
// to where they belong. Losing a lane is losing the session.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/result.h"
#include "rpc/channel.h"
#include "rpc/deliveries.h"
#include "rpc/inbox.h"
#include "rpc/lane_stream.h"
#include "rpc/loss.h"
#include "rpc/thread.h"

namespace flyt::rpc {

// Safe from any thread; stop() belongs to the owner.
class Lanes {
 public:
  Lanes(const LaneOptions& options, const wire::SessionToken& token, Deliveries& deliveries,
        Inbox& inbox, Loss& loss, const Clock& clock)
      : options_(options),
        token_(token),
        deliveries_(deliveries),
        inbox_(inbox),
        loss_(loss),
        clock_(clock) {}

  // Makes them if nobody has tried yet. Returns how many there are, now and ever.
  unsigned open() EXCLUDES(open_mutex_, mutex_);
  // As Channel::send_by_lanes().
  LaneSend send(Bytes data, std::size_t ahead_max,
                const std::function<void(const SentBlock&)>& on_sent) EXCLUDES(job_mutex_, mutex_);

  // The session is lost: whoever reads, writes or waits here ends.
  void shut_down() EXCLUDES(mutex_);
  void stop() EXCLUDES(open_mutex_);
  // In the child after a fork, which has none of the threads.
  void abandon();

  std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }

 private:
  struct Lane {
    std::uint16_t number = 0;
    std::unique_ptr<transport::Connection> connection;
    // The same, once others may see it.
    std::atomic<transport::Connection*> shared{nullptr};
    std::uint64_t blocks = 0;  // Sent; its writer's.
    Thread reader;
    Thread writer;
  };
  // One copy to the server, under way. Its blocks are taken and told in their order.
  struct Job {
    Bytes rest;  // What no lane has taken yet.
    std::size_t block_bytes = 0;
    std::size_t ahead_max = 0;  // Of `blocks`.
    struct Block {
      SentBlock told;
      bool sent = false;
    };
    std::deque<Block> blocks;       // Taken, and not yet told.
    std::uint64_t first_block = 0;  // The number of the front one in the copy.
    std::uint64_t taken = 0;
    std::uint64_t offset = 0;  // Where `rest` begins.
    unsigned at_work = 0;      // Lanes that read the copy's bytes.
  };

  bool wanted() const {
    return options_.count > 0 && options_.connect && token_ != wire::SessionToken{};
  }
  void run(Lane& lane);
  Status greet(Lane& lane, Instant deadline);
  void report(bool made) EXCLUDES(mutex_);
  void read(Lane& lane);
  Status read_block(LaneReader& reader);
  Status place(LaneReader& reader, const wire::LaneBlock& block, const Destination& destination,
               std::vector<std::byte>& buffer, std::vector<MutableBytes>& pieces);
  void write(Lane& lane);
  bool take(Lane& lane, Bytes& data, std::uint64_t& index) EXCLUDES(mutex_);
  void done(std::uint64_t index, bool sent) EXCLUDES(mutex_);
  bool next_sent(SentBlock& block) EXCLUDES(mutex_);
  void lose(const Error& error);

  const LaneOptions options_;
  const wire::SessionToken token_;
  Deliveries& deliveries_;
  Inbox& inbox_;
  Loss& loss_;
  const Clock& clock_;

  Mutex open_mutex_;  // Held while they are made.
  std::atomic<bool> tried_{false};
  std::array<Lane, wire::kLanesMax> lanes_;
  std::atomic<unsigned> made_{0};

  Mutex job_mutex_;  // Held by the thread whose copy is under way.
  Mutex mutex_;
  Condition wake_;     // There is something to send, or nothing ever will be.
  Condition changed_;  // A block was sent, a lane made or lost.
  Job job_ GUARDED_BY(mutex_);
  unsigned reported_ GUARDED_BY(mutex_) = 0;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
};

}  // namespace flyt::rpc
