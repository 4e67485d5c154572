// Endpoint: the server's end of a session. One main thread receives commands in order; replies and
// pushes go out from any thread.
//
//   Endpoint endpoint(std::move(connection), limits, pool, clock);
//   while (endpoint.receive(handler, deadline) != Received::kClosed) poll_what_is_pending();
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "rpc/backlog.h"
#include "rpc/buffer_pool.h"
#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace flyt::rpc {

// The first half of a session's start: reads exactly the hello, so that another process may take
// the connection over afterwards. A hello that breaks the rules, or none before `deadline`, is an
// error; a refusal with the reason has then been sent already. The version is checked too.
Result<wire::ClientHello> receive_hello(transport::Connection& connection, Instant deadline);

// What a whole hello says, if both sides can speak to each other; and what tells the peer if not.
Result<wire::ClientHello> judge_hello(Bytes bytes);
wire::Refusal refusal_of(const Error& bad_hello);
// The second half. After send_refusal() drop the connection.
Status send_welcome(transport::Connection& connection, const wire::Welcome& welcome,
                    Instant deadline);
Status send_refusal(transport::Connection& connection, const wire::Refusal& refusal,
                    Instant deadline);

// One command as received. Header and payload have been checked against the frame rules, not
// against the op's own. `payload` lies in `chunk` and stays valid while a copy of `chunk` is kept;
// without one, until on_command() returns.
struct Command {
  const wire::CommandHeader& header;
  Bytes payload;
  const ChunkRef& chunk;

  bool wants_reply() const { return (header.flags & wire::kWantsReply) != 0; }
};

class CommandHandler {
 public:
  virtual ~CommandHandler() = default;

  // Executes a command or hands it on. One that wants a reply gets exactly one, by
  // Endpoint::reply(), from any thread, now or later. An error ends the session: it is what a peer
  // gets for breaking a rule, its message is told to the peer.
  virtual Status on_command(const Command& command) = 0;
};

enum class Received : std::uint8_t {
  kCommands,  // At least one command was handled; there may be more.
  kNothing,   // The deadline passed.
  kWoken,     // wake() was called.
  kNoChunk,   // The pool had no chunk; call again when one came back.
  kClosed,    // The session is over: goodbye, peer gone, or ended. See closed_in_order(), error().
};

inline constexpr std::uint32_t kCommandsPerReceiveMax = 256;

// What the calling thread sends next: before a reply or the end of a watch, little data waits for
// it, and both go out together.
enum class Then : std::uint8_t { kAnything, kReply };

// How long receive() looks for commands before it sleeps: after the last ones, and for as long
// again and again while the client shows that it waits for the GPU (Connection::show_waiting()) and
// there are cores to spare, kWithClientMax at most.
struct Looking {
  static constexpr Duration kWithClientMax = std::chrono::milliseconds(20);

  Duration after_commands;
  std::function<bool(Instant now)> cores_to_spare;

  static Looking on_this_machine();
};

// Belongs to one session. receive() belongs to the main thread; everything else is safe from any
// thread. Sends to a peer that does not read are kept, up to kBacklogBytesMax, and flushed by
// receive(); beyond that the sending thread waits, which holds up this session alone.
class Endpoint {
 public:
  static constexpr std::size_t kBacklogBytesMax = 1 * kMiB;

  // `limits` are those told in the welcome (common_limits() of both sides).
  Endpoint(std::unique_ptr<transport::Connection> connection, const wire::Limits& limits,
           BufferPool& pool, const Clock& clock = system_clock(),
           Looking looking = Looking::on_this_machine());
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Reads what is there and runs up to kCommandsPerReceiveMax commands through `handler`; sleeps
  // until `deadline` if nothing is there (on machines with cores to spare it keeps looking for a
  // short while after the last commands before it does). The deadline {0} polls.
  Received receive(CommandHandler& handler, Instant deadline);

  // Makes a receive() that sleeps, or the next one that would, return kWoken.
  void wake();

  // Answers a command. `fields` are the encoded reply fields without the prefix; the earliest
  // unreported error of a posted command is put in front.
  void reply(std::uint64_t sequence, std::uint32_t result, Bytes fields = {});

  // Notes that a posted command failed; the next reply tells.
  void post_failed(std::uint64_t sequence, std::uint32_t result);
  // Whether there is such an error that no reply has told.
  bool owes_an_error();

  // From now on the client waits for replies, whatever else tells it that work is done: something
  // may have to reach it first (transport::Connection::notice()).
  void demand_replies();

  // Sends data for a delivery that the client announced, in several frames if it is long, straight
  // from `data`, which may be overwritten when it returns. The offsets of one delivery rise without
  // gaps from 0, so its pieces belong to one thread at a time; one of no bytes is sent, too. What
  // is sent before a reply arrives before it.
  void deliver(std::uint64_t delivery, std::uint64_t offset, Bytes data,
               Then then = Then::kAnything);
  // Tells that a part of a delivery, the next one, comes by lanes: the client goes on reading when
  // it is there.
  void deliver_by_lane(std::uint64_t delivery, std::uint64_t offset, std::uint64_t bytes);
  // Nothing (more) will come for this delivery.
  void drop_delivery(std::uint64_t delivery);

  void push_host_call(std::uint64_t sequence, std::uint64_t token, Bytes payload);
  // The end of a watch. Done becomes something to ask about while a posted command's error is to be
  // told.
  void push_completed(std::uint64_t token, std::uint32_t result) EXCLUDES(state_mutex_);
  void push_output(std::uint32_t stream, Bytes text);
  // At most wire::kMemoryChangesBytesMax bytes.
  void push_memory(Bytes changes);

  // The command that is being handled, of that payload, is kept for later. Until it is released it
  // is not acknowledged, so that the client sends no more than its credits; all others are. Main
  // thread.
  void withhold(std::uint64_t payload_bytes);
  // So many of them, of that payload altogether.
  void release(std::uint64_t commands, std::uint64_t payload_bytes);

  // Ends the session with a reason that the client is told. Idempotent; the first reason stays.
  void end(wire::EndedCode code, std::string_view reason);

  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // The client said goodbye.
  bool closed_in_order() const { return in_order_.load(std::memory_order_acquire); }
  // Why the session is over; only meaningful if closed().
  Error error() const;

  // Sleeps until the peer has gone or the deadline has passed; true if it has gone. For a watchdog
  // thread: it works while the main thread is stuck elsewhere.
  bool wait_for_hangup(Instant deadline) const;

  // The sequence number of the last command that was handed to the handler.
  std::uint64_t last_sequence() const { return last_sequence_.load(std::memory_order_relaxed); }

  std::string peer() const { return connection_->peer(); }
  // transport::Connection::shared_file().
  int shared_file() const { return connection_->shared_file(); }

 private:
  // Main thread only.
  bool fill(Instant deadline, Received& outcome);
  bool worth_looking_again(Instant deadline, std::uint32_t looks);
  bool looks_with_client(Instant now);
  Received sleep(Instant deadline);
  bool make_room();
  bool take_header(wire::CommandHeader& header);
  std::uint32_t run_commands(CommandHandler& handler);
  bool run_one(CommandHandler& handler);
  void dispatch(CommandHandler& handler, const Command& command);
  void acknowledge();
  Received finish();
  void linger();

  void send(wire::FrameHeader header, std::span<const Bytes> payload, Then then = Then::kAnything)
      EXCLUDES(send_mutex_);
  void send_locked(std::span<Bytes> pieces) REQUIRES(send_mutex_);
  void send_behind_backlog(std::span<Bytes> pieces) REQUIRES(send_mutex_);
  void keep_for_later(std::span<const Bytes> pieces) REQUIRES(send_mutex_);
  bool flush_locked(bool all) REQUIRES(send_mutex_);
  bool wait_for_room() REQUIRES(send_mutex_);
  void flush_backlog() EXCLUDES(send_mutex_);
  void let_others_send();
  bool backlog_empty() const { return !backlogged_.load(std::memory_order_acquire); }

  void violation(std::string reason);
  void close_with(Error error, bool in_order) EXCLUDES(state_mutex_);
  bool note_closed(Error error, bool in_order, bool telling = false) EXCLUDES(state_mutex_);
  void send_end(wire::EndedCode code, std::string_view reason);

  const std::unique_ptr<transport::Connection> connection_;
  const wire::Limits limits_;
  BufferPool& pool_;
  const Clock& clock_;
  const Looking looking_;
  const transport::Wakeup wakeup_;

  // Main thread only: the chunk being filled; [begin_, end_) was received and not yet run.
  ChunkRef chunk_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool received_ = false;  // Something, since look_until_ was set.
  Instant look_until_{};
  Instant look_with_client_until_{};
  std::uint32_t waiting_shown_ = 0;  // As last seen.
  std::uint32_t glances_ = 0;        // Since then: times that receive() was not to wait.
  std::uint64_t next_sequence_ = 1;
  std::uint64_t received_bytes_ = 0;  // Frame bytes of all commands handed to the handler.
  std::uint64_t acked_sequence_ = 0;
  std::uint64_t withheld_commands_ = 0;
  std::uint64_t withheld_bytes_ = 0;
  std::uint64_t acked_bytes_ = 0;

  std::atomic<std::uint64_t> last_sequence_{0};
  std::atomic<std::uint32_t> replies_owed_{0};
  std::atomic<bool> closed_{false};
  std::atomic<bool> in_order_{false};
  std::atomic<bool> woken_{false};
  std::atomic<bool> replied_{false};  // Since the main thread read last.
  std::atomic<bool> linger_{false};   // `ended` was sent and the peer may still be sending.
  std::atomic<bool> telling_{false};  // end() has closed the session and not told the peer yet.

  std::atomic<int> senders_waiting_{0};
  // What the socket did not take yet.
  Mutex send_mutex_;
  Backlog backlog_ GUARDED_BY(send_mutex_);
  bool broken_frame_ GUARDED_BY(send_mutex_) = false;  // A frame was given up half sent.
  std::atomic<bool> backlogged_{false};

  mutable Mutex state_mutex_;
  Error error_ GUARDED_BY(state_mutex_);
  std::uint64_t failed_sequence_ GUARDED_BY(state_mutex_) = 0;
  std::uint32_t failed_result_ GUARDED_BY(state_mutex_) = 0;
  bool demands_replies_ GUARDED_BY(state_mutex_) = false;
};

}  // namespace flyt::rpc
