// Inbox: the receiving half of a Channel. Whoever waits for something reads the socket itself; one
// thread at a time has the reader's role and serves the others meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "rpc/channel.h"
#include "rpc/deliveries.h"
#include "rpc/ledger.h"
#include "rpc/loss.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace flyt::rpc {

// A thread that waits: for the reply to `sequence`, or, with no reply object, for more credits.
// Lives on that thread's stack.
struct Waiter {
  enum State : std::uint32_t {
    kWaiting,
    kAsleep,    // In the futex; whoever changes the state wakes it.
    kPromoted,  // Asked to become the reader.
    kDone,
    kLost,
  };

  std::uint64_t sequence = 0;
  std::uint16_t op = 0;  // Of the command that is waited for.
  Reply* reply = nullptr;
  std::atomic<std::uint32_t> state{kWaiting};
  bool enrolled = false;  // The inbox knows of it: wait() must follow.
  bool reader = false;    // It has the reader's role.
  Waiter* next_in_bucket = nullptr;
  Waiter* next = nullptr;
  Waiter* previous = nullptr;
};

// Safe from any thread.
class Inbox {
 public:
  Inbox(transport::Connection& connection, Ledger& ledger, Deliveries& deliveries,
        PushHandler& pushes, Loss& loss, const Clock& clock, Duration spin);

  // Must come before the command can reach the server. False: the session is lost, and the waiter
  // is not enrolled. With `reads_at_once` it becomes the reader if there is none, and must go on to
  // wait() without waiting for anything else.
  bool enroll(Waiter& waiter, bool reads_at_once);

  // Waits until the ledger covers the command, or may do so: true. False if the session is lost.
  bool wait_for_credits(std::uint64_t sequence, std::uint64_t frame_bytes, bool kept);

  // True once the waiter's answer or credits are there, false if the session is lost. It is then
  // no longer enrolled.
  bool wait(Waiter& waiter);

  // Reads what has arrived, if nobody else does; not for ever where there is always more. For
  // threads that wait for something else, like room in the socket, and must not let the two sides
  // wait for each other.
  void read_if_nobody_does();

  // From the next wait on no waiter looks for longer than that before it sleeps.
  void limit_spin(Duration most);

  // As Channel::answer_by().
  void answer_by(Instant deadline) { answer_by_.store(deadline, std::memory_order_relaxed); }
  // That is not over yet; else the session is lost. Any thread.
  bool in_time();

  // The session is lost: waits until nobody waits or reads any more, and tells the calls that got
  // no answer.
  std::vector<Unanswered> unanswered();

  bool has_reader() const { return reader_present_.load(std::memory_order_relaxed); }

  std::uint64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kBufferBytes = 16 * kKiB;
  static constexpr std::size_t kBuckets = 64;

  void add(Waiter& waiter) REQUIRES(mutex_);
  void take_role(Waiter& waiter) REQUIRES(mutex_);
  void leave_role();
  void read_for(Waiter& waiter);
  void remove(Waiter& waiter) REQUIRES(mutex_);
  static void settle(Waiter& waiter, Waiter::State state);
  void release_all();

  // The reader only.
  bool read_more(transport::Patience patience);
  bool arrives_in_time();
  enum class Frames : std::uint8_t { kBegun, kWhole };
  bool run_frames(Frames which, const Waiter* until, std::uint64_t bytes_until = UINT64_MAX);
  bool run_frame(const wire::FrameHeader& header);
  bool on_reply(const wire::FrameHeader& header);
  bool on_ack(const wire::FrameHeader& header);
  bool on_host_data(const wire::FrameHeader& header);
  bool on_host_data_by_lane(const wire::FrameHeader& header);
  bool on_push(const wire::FrameHeader& header);
  bool on_ended(const wire::FrameHeader& header);
  bool take_payload(MutableBytes into);
  bool take_pieces(std::vector<MutableBytes>& pieces);
  bool skip_payload(std::size_t size);
  bool broken(std::string_view rule);
  Waiter* claim(std::uint64_t sequence);

  transport::Connection& connection_;
  Ledger& ledger_;
  Deliveries& deliveries_;
  PushHandler& pushes_;
  Loss& loss_;
  const Clock& clock_;
  std::atomic<Duration> spin_;
  std::atomic<Instant> answer_by_{};

  Mutex mutex_;
  std::atomic<bool> reader_present_{false};  // Changed under mutex_.
  std::array<Waiter*, kBuckets> buckets_ GUARDED_BY(mutex_){};
  Waiter* first_ GUARDED_BY(mutex_) = nullptr;  // All enrolled waiters that were not claimed.
  std::vector<Unanswered> unanswered_ GUARDED_BY(mutex_);

  // The reader only: bytes [begin_, end_) were received and not yet used.
  std::array<std::byte, kBufferBytes> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::vector<std::byte> large_;
  std::vector<MutableBytes> pieces_;
  std::atomic<std::uint64_t> bytes_received_{0};
};

}  // namespace flyt::rpc
