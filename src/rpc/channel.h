// Channel: the client's end of a session. An ordered stream of commands out, replies and pushed
// frames in, usable from any thread.
//
//   Post post = channel.begin(op, bytes, context);       // a posted command: nobody waits
//   if (!post) return lost;
//   encode(command, post.writer());
//   post.commit();
//
//   Post post = channel.begin(op, bytes, context, Answer::kReply);
//   if (!post) return lost;
//   encode(command, post.writer());
//   Reply reply;                                          // a waiting call
//   Status status = channel.call(std::move(post), reply); // !ok: the session is lost
//   ... reply.result(), reply.fields() ...
//
// Order: the server executes commands in the order of their sequence numbers, which is the order
// of begin(). So two threads that order themselves by ordinary host synchronisation see their
// commands executed in that order.
//
// Loss: an I/O error, a broken protocol rule or the server's `ended` frame loses the session for
// ever. Every waiting call returns the error within milliseconds, every later one at once. A lost
// session never yields a value.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "rpc/observer.h"
#include "rpc/unfinished.h"
#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace flyt::rpc {

class ChannelCore;
class Inbox;

// What the server answered to one call. Owns its bytes; reuse saves allocations. Belongs to the
// calling thread.
class Reply {
 public:
  // The CUresult of the call itself.
  std::uint32_t result() const { return prefix_.result; }
  // The CUresult of the earliest posted command that failed and was not reported yet, 0 if none,
  // and its sequence number.
  std::uint32_t posted_error() const { return prefix_.posted_error; }
  std::uint64_t posted_error_sequence() const { return prefix_.posted_error_sequence; }
  // The command's reply fields; valid until the Reply is used again or ends.
  Bytes fields() const { return large_.empty() ? Bytes(small_).first(size_) : Bytes(large_); }

 private:
  friend class Inbox;
  MutableBytes prepare(std::size_t size);

  wire::ReplyPrefix prefix_;
  std::size_t size_ = 0;
  std::array<std::byte, 512> small_;
  std::vector<std::byte> large_;
};

// A call that was lost with its session.
struct Unanswered {
  std::uint64_t sequence = 0;
  std::uint16_t op = 0;
};

enum class Answer : std::uint8_t { kNone, kReply };

// Space for one frame in the send buffer, and the sequence number it will have.
struct Slot {
  MutableBytes frame;
  std::uint64_t sequence = 0;
};

// A command being written straight into the send buffer. It holds the channel's post lock until
// commit(), call() or its end, so: encode, nothing else, in between. Dropped without commit() it
// was never there. Belongs to one thread.
class Post {
 public:
  Post() = default;
  Post(Post&& other) noexcept;
  Post& operator=(Post&&) = delete;
  ~Post();

  // False when the session is lost (Channel::error()); nothing but the destructor may follow.
  explicit operator bool() const { return core_ != nullptr; }

  // Space for the payload_bytes asked for; fewer may be written.
  Writer& writer() { return writer_; }

  // This command's sequence number.
  std::uint64_t sequence() const { return slot_.sequence; }

  // Hands the command over to be sent. Never blocks, does not allocate; system calls, which wake
  // the sender and send the command, only if it slept. The command must have been begun with
  // Answer::kNone.
  void commit();

 private:
  friend class Channel;
  friend class ChannelCore;
  ChannelCore* core_ = nullptr;
  Writer writer_{MutableBytes{}};
  Slot slot_;
  std::uint32_t context_ = 0;
  std::uint16_t op_ = 0;
  Answer answer_ = Answer::kNone;
};

// Where data that the server sends goes: `rows` rows of `row_bytes` bytes, `row_pitch` apart, in
// each of `slices` slices, `slice_pitch` apart. Offsets on the wire count the packed bytes.
struct Destination {
  void* base = nullptr;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 1;
  std::uint64_t row_pitch = 0;
  std::uint64_t slices = 1;
  std::uint64_t slice_pitch = 0;

  static Destination flat(void* base, std::uint64_t bytes) { return {base, bytes}; }
  std::uint64_t bytes() const { return row_bytes * rows * slices; }
};

// Data that a call of this thread expects (a blocking copy to the host). The id goes into the
// command; the memory is written while call() runs, by whatever thread reads the socket, and never
// after this object has ended. Belongs to one thread.
class Delivery {
 public:
  Delivery(Delivery&& other) noexcept;
  Delivery& operator=(Delivery&&) = delete;
  ~Delivery();

  std::uint64_t id() const { return id_; }
  // All bytes have arrived. Meaningful once call() has returned success.
  bool complete() const;

 private:
  friend class Channel;
  Delivery(ChannelCore* core, std::uint64_t id) : core_(core), id_(id) {}
  ChannelCore* core_;
  std::uint64_t id_;
};

// Further connections of the session (rpc/lanes.h).
struct LaneOptions {
  unsigned count = 0;
  // Makes one before the deadline. Called from threads of the channel.
  std::function<Result<std::unique_ptr<transport::Connection>>(Instant)> connect;
  Duration patience{};  // For connecting and greeting.
  wire::LanePacking packing = wire::LanePacking::kAuto;
};

// A part of a copy that a lane has sent: the command to be posted next names it.
struct SentBlock {
  std::uint64_t offset = 0;  // In the copy.
  std::uint64_t number = 0;  // Of the lane's blocks.
  std::uint32_t bytes = 0;
  std::uint32_t lane = 0;
};

// More than lanes, so that none waits for who names the blocks.
inline constexpr std::size_t kLaneBlocksAhead = 4 * wire::kLanesMax;

enum class LaneSend : std::uint8_t {
  kSent,
  kNone,  // There are no lanes, or another thread's copy is under way: nothing was sent.
  kLost,  // The session is.
};

// Receives what the server sends on its own account. Called by whatever thread reads the socket,
// one call at a time, in the order of arrival: it must be quick, must not use the channel, and
// must not wait for a thread that does.
class PushHandler {
 public:
  virtual ~PushHandler() = default;
  // A host function or callback is due. `sequence`: the command that enqueued it. False: there are
  // more than wire::kHostCallsMax, and the session is lost.
  virtual bool on_host_call(std::uint64_t sequence, std::uint64_t token, Bytes payload) = 0;
  // Device printf and the like. `stream`: 1 stdout, 2 stderr.
  virtual void on_output(std::uint32_t stream, Bytes text) = 0;
  // A detached delivery has arrived whole (or will not: `dropped`).
  virtual void on_delivered(std::uint64_t delivery, bool dropped) = 0;
  // What device work has written to memory that both sides hold (wire/memory_changes.h). False:
  // that is nothing the server may write, and the session is lost.
  virtual bool on_memory(Bytes) { return false; }
  // A watch has ended: `result` 0 means done, anything else that the server is to be asked.
  virtual void on_completed(std::uint64_t /*token*/, std::uint64_t /*result*/) {}
  // The session is lost, once, before any call returns the error.
  virtual void on_lost(const Error& error) = 0;
};

struct ChannelOptions {
  const Clock* clock = &system_clock();
  // How long the sender thread looks for more work before it sleeps: longer than what lies between
  // two operations of a framework, because waking it costs the poster more than a post. A fifth of
  // it on machines with fewer than four cores, not at all with one.
  Duration sender_spin = std::chrono::microseconds(100);
  // How long a waiting call looks for its reply before it sleeps; not on machines with fewer than
  // four cores, where it would keep others from working. Halves the time of a short call.
  Duration reply_spin = std::chrono::microseconds(50);
  // Sees all commands but the channel's own; may be null, and then costs nothing.
  CommandObserver* observer = nullptr;
  // Bytes of commands that wait to be written to the socket.
  std::size_t send_buffer_bytes = 1 * kMiB;
  // Copies of commands are kept, see Channel::unfinished().
  bool keeps_unfinished = false;
  // By op: true for those that a session which goes on elsewhere does not miss; see
  // newest_missed(). Must outlive the channel.
  std::span<const bool> not_missed;
  LaneOptions lanes;
};

struct ChannelCounters {
  std::uint64_t commands = 0;  // Posted and waiting ones together.
  std::uint64_t calls = 0;     // Those that waited for a reply.
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t credit_waits = 0;  // Times a poster had to wait for the server.
};

// While it lives the calling thread's commands are another thread's of this client, by the number
// in their headers.
class AsThread {
 public:
  explicit AsThread(std::uint32_t thread);
  ~AsThread();
  AsThread(const AsThread&) = delete;
  AsThread& operator=(const AsThread&) = delete;

 private:
  const std::uint32_t before_;
};

// While it lives the calling thread may use the eighth of the session's credits that is kept from
// all others, who may have used up theirs: for what the server waits for before it takes anything
// else.
class KeptCredits {
 public:
  KeptCredits();
  ~KeptCredits();
  // Whether the calling thread has one.
  static bool used();
  KeptCredits(const KeptCredits&) = delete;
  KeptCredits& operator=(const KeptCredits&) = delete;

 private:
  const bool before_;
};

// Safe from any thread, except open() and the destructor. Budget: begin + commit <= 200 ns beside
// the encoding; a waiting call costs a raw ping-pong + about 1 us.
class Channel {
 public:
  // Says hello over `connection` and waits for the answer until `deadline`. The handler must
  // outlive the channel. kDenied, kUnsupported and kLimit carry the server's
  // reason.
  static Result<std::unique_ptr<Channel>> open(std::unique_ptr<transport::Connection> connection,
                                               const wire::ClientHello& hello, Instant deadline,
                                               PushHandler& pushes,
                                               const ChannelOptions& options = {});

  // Like shut_down() if close() was not called. No other thread may be using the channel.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const wire::Welcome& welcome() const;

  // Starts a command of at most `payload_bytes` (<= kPostPayloadBytesMax) bytes. `context` is the
  // handle index of the calling thread's current context or 0. May wait for credits or room when
  // the server is behind. Empty when the session is lost.
  Post begin(std::uint16_t op, std::size_t payload_bytes, std::uint32_t context,
             Answer answer = Answer::kNone);

  // Commits a command begun with Answer::kReply and waits for its reply. The only error is the
  // loss of the session.
  Status call(Post post, Reply& reply);

  // Posts one command whose payload is `fields` (<= kBulkFieldsBytesMax) followed by the bytes of
  // `data` (<= kBulkBytesMax together), sent from where they are. When it returns they may be
  // overwritten. Yields the sequence number. Larger copies are several commands, so that other
  // threads' commands come in between.
  Result<std::uint64_t> post_bulk(std::uint16_t op, std::uint32_t context, Bytes fields,
                                  std::span<const Bytes> data);
  Result<std::uint64_t> post_bulk(std::uint16_t op, std::uint32_t context, Bytes fields,
                                  Bytes data) {
    return post_bulk(op, context, fields, std::span<const Bytes>(&data, 1));
  }
  // The same for a command that is waited for.
  Status call_bulk(std::uint16_t op, std::uint32_t context, Bytes fields,
                   std::span<const Bytes> data, Reply& reply);

  // Whoever still waits for the server at `deadline` finds the session lost, with kTimeout; with
  // Instant{} it may take as long as it likes, as from the beginning. While nobody waits.
  void answer_by(Instant deadline);

  // Makes the session's lanes, if it may have some and nobody has tried yet; waits until they are
  // there or cannot be had. Returns how many there are.
  unsigned open_lanes();
  // Sends `data` over the lanes that open_lanes() has made, in blocks; `on_sent` is called for each
  // in the order of their offsets when its bytes may be overwritten, and must post the command that
  // names it. At most `ahead_max` blocks, at least 1, are sent or on their way for which it has not
  // been called; fewer than there are lanes leave some idle.
  LaneSend send_by_lanes(Bytes data, const std::function<void(const SentBlock&)>& on_sent,
                         std::size_t ahead_max = kLaneBlocksAhead);

  // Names memory that the server's next answers may fill. See Delivery.
  Delivery expect(const Destination& destination);

  // The same for a posted copy: the memory is filled whenever the bytes come, then on_delivered()
  // is called. While any is outstanding a background thread reads the socket if nobody else does.
  std::uint64_t expect_detached(const Destination& destination);

  // Forgets a detached delivery, of whichever connection. When it returns, its memory is not
  // written any more. Not to be called from a PushHandler.
  void forget(std::uint64_t delivery);

  // While the count is above zero a background thread reads the socket if nobody else does, so
  // that host calls and output arrive. One more / one less frame or period expected.
  void expect_pushes(std::int64_t change) EXCLUDES(expect_mutex_);

  // Takes in what the server has sent so far, unless another thread is reading. Never waits.
  void take_in();

  // Sends everything posted and a goodbye, then shuts down. kTimeout if the peer did not take it
  // by `deadline` (shut down nevertheless). Present and later calls fail.
  Status close(Instant deadline);

  // Loses the session with this reason, from any thread.
  void shut_down(std::string_view reason);

  // For the child after a fork, whose copy of the channel has no threads behind it and whose locks
  // may be held for ever: every call fails from now on, the socket is closed here and stays open
  // in the parent. The object must not be destroyed in the child, only forgotten.
  void abandon_after_fork();

  // transport::Connection::notice(). Set before the server does anything that comes after what it
  // has to tell.
  bool noticed() const;
  // transport::Connection::show_waiting().
  void show_waiting();
  // ChannelOptions::reply_spin is `most` from now on, if it is longer.
  void limit_reply_spin(Duration most);
  // The thread has waited since then without a reply, for what the GPU tells of a command `op`.
  void note_wait(std::uint16_t op, Instant since);

  // transport::Connection::shared_file().
  int shared_file() const;

  // The lost session goes on in another process of the server, over the connection of `other`,
  // which is nobody else's: what is begun from now on goes there, and is numbered on from what was
  // begun there. What was begun before and not answered stays lost.
  void go_on_with(std::unique_ptr<Channel> other) EXCLUDES(expect_mutex_);
  // Once lost(): the connection broke, and nobody meant to end the session.
  bool cut() const;
  // Once lost(): the calls that got no answer. When it returns, every command that its thread takes
  // for sent is counted by newest(), and kept where they are kept.
  std::vector<Unanswered> unanswered();

  // Once lost(), and after unanswered(): copies of all commands behind that number, as far as they
  // are still in the buffer that they were sent from; nothing if any of them is not. Some tens of
  // launches are.
  std::optional<std::vector<Unfinished::Command>> newest_behind(std::uint64_t sequence);
  // The newest commands of the connection there is; null unless they are kept.
  const Unfinished* unfinished() const;

  bool lost() const;
  // Why the session was lost; only meaningful if lost().
  Error error() const;

  // The number of the newest command that any thread has sent.
  std::uint64_t newest() const;
  // That of the newest one that nobody waits for and that is missed if it never arrives.
  std::uint64_t newest_missed() const;
  ChannelCounters counters() const;

 private:
  struct Private {};

 public:
  // Channels come from open().
  Channel(Private, std::unique_ptr<ChannelCore> core);

 private:
  ChannelCore& core() const { return *core_.load(std::memory_order_acquire); }

  std::unique_ptr<ChannelCore> owned_;
  std::atomic<ChannelCore*> core_;  // owned_'s.
  // Threads that are late may still be inside those of before.
  std::vector<std::unique_ptr<ChannelCore>> retired_;
  Mutex expect_mutex_;
};

}  // namespace flyt::rpc
