// Outbox: the sending half of a Channel. Commands are encoded in place into a ring; a sender
// thread, or a caller who is going to wait anyway, writes it to the socket.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "rpc/channel.h"
#include "rpc/futex.h"
#include "rpc/inbox.h"
#include "rpc/ledger.h"
#include "rpc/loss.h"
#include "rpc/thread.h"
#include "rpc/unfinished.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace flyt::rpc {

// What of a command's header the caller knows.
struct CommandKey {
  std::uint16_t op = 0;
  std::uint32_t context = 0;
  Answer answer = Answer::kNone;
};

// Safe from any thread; start() and stop() belong to the owner.
//
// Positions in the ring count "virtual" bytes: a lap is longer than the ring by kSlack and more, so
// that a frame that begins near the ring's end runs on contiguously, and the next one begins a new
// lap. It is a power of two: a launch would divide eight times otherwise.
class Outbox {
 public:
  Outbox(transport::Connection& connection, Ledger& ledger, Inbox& inbox, Loss& loss,
         const Clock& clock, Duration spin, const ChannelOptions& options, Unfinished* unfinished);

  Status start();
  void stop();

  // Takes the post lock and finds space for a frame; waits for credits and space if need be. False
  // (and no lock held) when the session is lost, which the caller has looked at just before.
  // publish() or cancel() must follow.
  bool open(std::size_t payload_bytes, Slot& slot) TRY_ACQUIRE(true, post_role_);

  // Completes the frame with its header and lets the sender have it; releases the post lock.
  void publish(const Slot& slot, const CommandKey& key, std::size_t payload_bytes, bool wake)
      RELEASE(post_role_);
  void cancel() RELEASE(post_role_) { post_role_.give(); }

  // Sends what was published, as far as the socket takes it at once; the sender does the rest. A
  // socket that fails is left for the caller to meet, who is going to read.
  void flush();

  // Sends everything before this command, then this command from where its bytes are. `waiter`
  // (may be null) is enrolled with its sequence number first. False when the session is lost.
  bool send_bulk(const CommandKey& key, Bytes fields, std::span<const Bytes> data, Waiter* waiter,
                 std::uint64_t& sequence);

  // Everything published has been written to the socket, or the deadline has passed (false).
  bool drain(Instant deadline);

  // The session is lost: once this returns nobody publishes any more, and what was is counted. Not
  // for a thread with a Post.
  void settle() {
    post_role_.take();
    post_role_.give();
  }

  // The session is lost and settled: copies of all commands behind that number, in their order.
  // Nothing if they are not all here any more: those at hand are the newest, kNewestMax at most and
  // at least what kHotBytes hold, of which none was sent by send_bulk().
  std::optional<std::vector<Unfinished::Command>> newest_behind(std::uint64_t sequence);

  // Nobody sends any more: the memory of what was not sent goes.
  void release_memory();

  std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  std::uint64_t credit_waits() const { return credit_waits_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kSlack = wire::kHeaderBytes + wire::kPostPayloadBytesMax;
  // A part of a processor's first cache.
  static constexpr std::uint64_t kHotBytes = 8 * kKiB;
  static constexpr std::size_t kNewestMax = 256;
  static constexpr std::uint64_t kNotInRing = UINT64_MAX;
  enum class Drained : std::uint8_t { kAll, kFull, kLost };

  std::uint64_t lap_bytes() const { return std::uint64_t{1} << lap_bits_; }
  std::uint64_t lap_of(std::uint64_t position) const { return position >> lap_bits_; }
  std::uint64_t within_lap(std::uint64_t position) const { return position & (lap_bytes() - 1); }
  bool have_credits(std::uint64_t frame_bytes) REQUIRES(post_role_) {
    return ledger_.covers(next_sequence_, frame_bytes, false) || wait_for_credits(frame_bytes);
  }
  // Gives the role back while it waits: those with kept credits go on.
  bool wait_for_credits(std::uint64_t frame_bytes) REQUIRES(post_role_);
  bool wait_for_space(std::size_t frame_bytes) REQUIRES(post_role_);
  bool has_space(std::size_t frame_bytes) REQUIRES(post_role_);
  void account(const CommandKey& key, std::uint64_t sequence, std::uint64_t frame_bytes)
      REQUIRES(post_role_);
  bool may_start_over(std::uint64_t head) const REQUIRES(post_role_);
  bool is_intact(std::uint64_t position) const REQUIRES(post_role_);
  static wire::CommandHeader header_of(const CommandKey& key, std::uint64_t sequence,
                                       std::size_t payload_bytes);
  static void put_header(MutableBytes frame, const CommandKey& key, std::uint64_t sequence,
                         std::size_t payload_bytes);

  bool take_to_send() TRY_ACQUIRE(true, send_role_);
  void count_sent(std::uint64_t bytes) REQUIRES(send_role_) {
    bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + bytes,
                      std::memory_order_relaxed);
  }
  Drained drain_ring(transport::Patience patience, std::uint64_t until) REQUIRES(send_role_);
  bool write_all(std::span<Bytes> pieces) REQUIRES(send_role_);
  bool wait_for_room();
  void lose(Error error, transport::Patience patience);
  bool pending() const { return tail_.load() != head_.load(); }
  void confirm_head();
  void wake_sender();
  void wake_and_send(std::uint64_t head) EXCLUDES(send_role_);
  void run_sender();
  bool spin_for_work();

  transport::Connection& connection_;
  Ledger& ledger_;
  Inbox& inbox_;
  Loss& loss_;
  const Clock& clock_;
  const Duration spin_;
  const bool eager_;  // The connection's: who publishes also sends.
  const std::size_t ring_bytes_;
  const unsigned lap_bits_;
  const std::unique_ptr<std::byte[]> ring_;
  Unfinished* const unfinished_;  // Null: nothing is done again.
  const std::span<const bool> not_missed_;

  // The posters' side. start_ is where the next frame goes: head_, but on the lap it will be on.
  alignas(64) Role post_role_;
  std::uint64_t next_sequence_ GUARDED_BY(post_role_) = 1;
  std::uint64_t known_tail_ GUARDED_BY(post_role_) = 0;
  // Where the newest commands are in the ring, by their sequence numbers.
  std::array<std::uint64_t, kNewestMax> newest_ GUARDED_BY(post_role_){};
  std::uint64_t touched_ GUARDED_BY(post_role_) = 0;  // Behind the last frame that was begun.
  std::atomic<std::uint64_t> credit_waits_{0};

  // [tail_, head_) is to be sent. lap_end_ is where the bytes of the lap before head_'s end.
  alignas(64) std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint64_t> lap_end_{0};
  std::atomic<std::uint32_t> sender_asleep_{0};

  // The senders' side.
  alignas(64) Role send_role_;
  std::atomic<std::uint64_t> tail_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};

  std::atomic<bool> stopping_{false};
  transport::Wakeup sender_wakeup_;
  Thread sender_;
};

}  // namespace flyt::rpc
