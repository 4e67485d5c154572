#include "rpc/endpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/spare_cores.h"
#include "rpc/futex.h"

namespace flyt::rpc {
namespace {

using transport::Patience;

// One read takes at most this much, so that work starts before a long transfer has ended.
constexpr std::size_t kReadBytesMax = 512 * kKiB;
// A chunk with less room than this behind its last whole frame is not filled any further.
constexpr std::size_t kUsefulRoomBytes = 16 * kKiB;
// A rest of a frame up to this size is copied for later rather than waited for.
constexpr std::size_t kBacklogPieceBytesMax = 64 * kKiB;
// A sender that waits for room looks this often whether the session has ended meanwhile.
constexpr Duration kSendPatience = std::chrono::milliseconds(50);
// After `ended` has been sent, what still comes in is read and dropped for this long at most: a
// connection closed with unread bytes may take the last frame with it.
constexpr Duration kLingerMax = std::chrono::milliseconds(200);
constexpr std::size_t kPiecesPerFrame = 3;
// So much data waits for the reply that follows it.
constexpr std::size_t kDataBeforeReplyBytesMax = 4 * kKiB;
// How long receive() looks for commands after the last ones before it sleeps.
constexpr Duration kReceiveSpin = std::chrono::microseconds(100);
// The clock is read once in so many looks: it takes as long as a few of them.
constexpr std::uint32_t kLooksPerClock = 16;
// Who does not wait has looked when nothing was read. A wait is a system call, and asks the peer to
// ring; one is made now and then all the same, as it notices that the peer is gone.
constexpr std::uint32_t kGlancesPerWait = 64;
// Host data is sent in frames of this size, between which replies to other threads get through.
constexpr std::size_t kDeliveryPieceBytes = 512 * kKiB;
static_assert(kDeliveryPieceBytes <= wire::kHostDataBytesMax);
constexpr Duration kTurn = std::chrono::microseconds(10);
constexpr int kTurnsMax = 10;

wire::EndedCode ended_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kDenied:
      return wire::EndedCode::kProtocolViolation;
    case ErrorCode::kLimit:
      return wire::EndedCode::kLimit;
    case ErrorCode::kLost:
    case ErrorCode::kTimeout:
    case ErrorCode::kSystem:
      return wire::EndedCode::kServerFault;
  }
  return wire::EndedCode::kServerFault;
}

std::size_t total_size(std::span<const Bytes> pieces) {
  std::size_t sum = 0;
  for (const Bytes& piece : pieces) sum += piece.size();
  return sum;
}

// Takes `size` bytes off the front of the pieces.
void drop_front(std::span<Bytes> pieces, std::size_t size) {
  for (Bytes& piece : pieces) {
    const std::size_t part = std::min(size, piece.size());
    piece = piece.subspan(part);
    size -= part;
  }
}

}  // namespace

Looking Looking::on_this_machine() {
  return {.after_commands = spin_on(4, kReceiveSpin),
          .cores_to_spare = [cores = SpareCores()](Instant now) mutable { return cores.any(now); }};
}

Endpoint::Endpoint(std::unique_ptr<transport::Connection> connection, const wire::Limits& limits,
                   BufferPool& pool, const Clock& clock, Looking looking)
    : connection_(std::move(connection)),
      limits_(limits),
      pool_(pool),
      clock_(clock),
      looking_(std::move(looking)) {}

Endpoint::~Endpoint() {
  linger();
  connection_->shut_down();
}

Received Endpoint::receive(CommandHandler& handler, Instant deadline) {
  flush_backlog();
  while (!closed()) {
    if (run_commands(handler) > 0) return closed() ? finish() : Received::kCommands;
    if (closed()) break;
    Received outcome = Received::kNothing;
    if (!fill(deadline, outcome)) return outcome == Received::kClosed ? finish() : outcome;
  }
  return finish();
}

Received Endpoint::finish() {
  linger();
  connection_->shut_down();
  return Received::kClosed;
}

void Endpoint::linger() {
  telling_.wait(true, std::memory_order_acquire);
  if (!linger_.exchange(false)) return;
  const Instant deadline = clock_.now() + kLingerMax;
  std::array<std::byte, 4096> waste;
  const MutableBytes into(waste);
  while (clock_.now() < deadline) {
    const Result<std::size_t> got = connection_->read({&into, 1}, Patience::kNow);
    if (!got) return;
    flush_backlog();
    if (*got == 0) connection_->wait(transport::kReadable, deadline, nullptr);
  }
}

// Puts at least one more byte behind end_; false with the outcome if that did not come about.
bool Endpoint::fill(Instant deadline, Received& outcome) {
  if (!make_room()) {
    outcome = Received::kNoChunk;
    return false;
  }
  const MutableBytes room = chunk_->bytes().subspan(end_);
  const MutableBytes into = room.first(std::min(room.size(), kReadBytesMax));
  // A client that has just been answered takes a while to send again: trying to read before that
  // is a system call in vain. Where there are cores to look with, it is looked for as after a
  // command.
  const bool replied = replied_.exchange(false, std::memory_order_relaxed);
  if (replied) received_ = true;
  bool sleep_first = replied && deadline.ns > 0 && looking_.after_commands.count() == 0;
  std::uint32_t looks = 0;
  while (true) {
    if (!sleep_first) {
      Result<std::size_t> got = connection_->read({&into, 1}, Patience::kNow);
      if (!got) {
        close_with(std::move(got).error(), false);
        outcome = Received::kClosed;
        return false;
      }
      end_ += *got;
      if (*got > 0) {
        received_ = true;
        glances_ = 0;
        return true;
      }
      if (worth_looking_again(deadline, ++looks)) continue;
    }
    sleep_first = false;
    if (deadline.ns == 0 && ++glances_ % kGlancesPerWait != 0) {
      outcome = woken_.exchange(false) ? Received::kWoken : Received::kNothing;
      return false;
    }
    outcome = sleep(deadline);
    if (outcome != Received::kCommands) return false;
  }
}

// Commands come in bursts: for a while after the last one, looking is quicker than being woken.
bool Endpoint::worth_looking_again(Instant deadline, std::uint32_t looks) {
  if (looking_.after_commands.count() == 0 || deadline.ns == 0 ||
      woken_.load(std::memory_order_relaxed) || !backlog_empty() || closed()) {
    return false;
  }
  relax();
  if (looks % kLooksPerClock != 0) return true;
  const Instant now = clock_.now();
  if (std::exchange(received_, false)) {
    look_until_ = now + looking_.after_commands;
    look_with_client_until_ = now + Looking::kWithClientMax;
    waiting_shown_ = connection_->waiting_shown();
  }
  if (now >= look_until_ && looks_with_client(now)) look_until_ = now + looking_.after_commands;
  return now < std::min(look_until_, deadline);
}

// To be woken takes tens of microseconds, which whoever waits for the GPU would have at each wait
// that is longer than this side looks by itself: natively nobody has to be woken.
bool Endpoint::looks_with_client(Instant now) {
  const std::uint32_t shown = connection_->waiting_shown();
  return std::exchange(waiting_shown_, shown) != shown && now < look_with_client_until_ &&
         looking_.cores_to_spare(now);
}

// kCommands: it is worth reading again.
Received Endpoint::sleep(Instant deadline) {
  while (true) {
    // A wait may have taken the signal and reported bytes as well, so the flag is what counts.
    if (woken_.exchange(false)) return Received::kWoken;
    const auto wanted = static_cast<transport::ReadySet>(
        transport::kReadable | (backlog_empty() ? 0 : transport::kWritable));
    const transport::ReadySet ready = connection_->wait(wanted, deadline, &wakeup_);
    if (closed()) return Received::kClosed;
    if ((ready & transport::kWritable) != 0) flush_backlog();
    if ((ready & transport::kReadable) != 0) return Received::kCommands;
    // If there is a backlog now, the next wait is for room as well.
    if (ready == transport::kNothing) return Received::kNothing;
  }
}

// Makes sure that the frame which starts at begin_ can be completed in the chunk, and that there
// is room at end_. False if that takes a chunk and the pool has none.
bool Endpoint::make_room() {
  const std::size_t waiting = end_ - begin_;
  if (chunk_ && waiting == 0 && begin_ != 0 && chunk_.sole()) begin_ = end_ = 0;
  if (chunk_) {
    wire::CommandHeader header;
    const std::size_t needed =
        take_header(header) ? wire::kHeaderBytes + header.payload_bytes : wire::kHeaderBytes;
    const std::size_t room = chunk_->bytes().size() - begin_;
    if (needed <= room && (waiting > 0 || room >= kUsefulRoomBytes)) return true;
  }
  if (chunk_ && chunk_.sole()) {
    const MutableBytes bytes = chunk_->bytes();
    std::memmove(bytes.data(), bytes.data() + begin_, waiting);
  } else {
    ChunkRef fresh(pool_.acquire());
    if (!fresh) return false;
    FLYT_ASSERT(fresh->bytes().size() >= wire::kFrameBytesMax);
    if (waiting > 0) {
      std::memcpy(fresh->bytes().data(), chunk_->bytes().data() + begin_, waiting);
    }
    chunk_ = std::move(fresh);
  }
  begin_ = 0;
  end_ = waiting;
  return true;
}

bool Endpoint::take_header(wire::CommandHeader& header) {
  if (end_ - begin_ < wire::kHeaderBytes) return false;
  Reader reader(chunk_->bytes().subspan(begin_, wire::kHeaderBytes));
  header = wire::decode_command_header(reader);
  return true;
}

std::uint32_t Endpoint::run_commands(CommandHandler& handler) {
  std::uint32_t count = 0;
  while (count < kCommandsPerReceiveMax && run_one(handler)) ++count;
  return count;
}

bool Endpoint::run_one(CommandHandler& handler) {
  wire::CommandHeader header;
  if (closed() || !take_header(header)) return false;
  const std::string_view problem = wire::problem_with(header, next_sequence_);
  if (!problem.empty()) {
    violation(std::string(problem));
    return false;
  }
  const std::size_t frame_bytes = wire::kHeaderBytes + header.payload_bytes;
  if (received_bytes_ + frame_bytes - acked_bytes_ > limits_.bytes_in_flight ||
      header.sequence - acked_sequence_ > limits_.commands_in_flight) {
    violation("more in flight than the credits allow");
    return false;
  }
  if (end_ - begin_ < frame_bytes) return false;

  const Bytes payload = chunk_->bytes().subspan(begin_ + wire::kHeaderBytes, header.payload_bytes);
  begin_ += frame_bytes;
  received_bytes_ += frame_bytes;
  ++next_sequence_;
  last_sequence_.store(header.sequence, std::memory_order_relaxed);
  dispatch(handler, Command{header, payload, chunk_});
  if (!closed()) acknowledge();
  return true;
}

void Endpoint::dispatch(CommandHandler& handler, const Command& command) {
  if (command.wants_reply() && replies_owed_.fetch_add(1) >= limits_.calls_waiting) {
    violation("more calls waiting than the limit");
    return;
  }
  if (command.header.op >= wire::kFirstApiOp) {
    const Status status = handler.on_command(command);
    if (!status) end(ended_code(status.error().code), status.error().message);
    return;
  }
  switch (static_cast<wire::ProtocolOp>(command.header.op)) {
    case wire::ProtocolOp::kGoodbye:
      close_with(Error{ErrorCode::kLost, "the client said goodbye"}, true);
      return;
    case wire::ProtocolOp::kPing:
      reply(command.header.sequence, 0);
      return;
  }
}

void Endpoint::withhold(std::uint64_t payload_bytes) {
  ++withheld_commands_;
  withheld_bytes_ += wire::kHeaderBytes + payload_bytes;
}

void Endpoint::release(std::uint64_t commands, std::uint64_t payload_bytes) {
  withheld_commands_ -= commands;
  withheld_bytes_ -= commands * wire::kHeaderBytes + payload_bytes;
  if (!closed()) acknowledge();
}

void Endpoint::acknowledge() {
  const std::uint64_t sequence = next_sequence_ - 1 - withheld_commands_;
  const std::uint64_t bytes = received_bytes_ - withheld_bytes_;
  if (sequence - acked_sequence_ < limits_.commands_in_flight / 8 &&
      bytes - acked_bytes_ < limits_.bytes_in_flight / 8) {
    return;
  }
  acked_sequence_ = sequence;
  acked_bytes_ = bytes;
  send({.kind = static_cast<std::uint16_t>(wire::FrameKind::kAck),
        .sequence = acked_sequence_,
        .argument = acked_bytes_},
       {});
}

void Endpoint::wake() {
  woken_.store(true);
  wakeup_.signal();
}

void Endpoint::reply(std::uint64_t sequence, std::uint32_t result, Bytes fields) {
  FLYT_ASSERT(fields.size() <= wire::kReplyFieldsBytesMax);
  const std::uint32_t owed = replies_owed_.fetch_sub(1);
  FLYT_ASSERT(owed > 0);
  wire::ReplyPrefix prefix{.result = result};
  {
    const Lock lock(state_mutex_);
    prefix.posted_error = std::exchange(failed_result_, 0);
    prefix.posted_error_sequence = std::exchange(failed_sequence_, 0);
    if (prefix.posted_error != 0 && !demands_replies_) connection_->set_notice(false);
  }
  std::array<std::byte, sizeof prefix> prefix_bytes;
  Writer writer(prefix_bytes);
  wire::encode(prefix, writer);
  const std::array<Bytes, 2> pieces{prefix_bytes, fields};
  send({.kind = static_cast<std::uint16_t>(wire::FrameKind::kReply), .sequence = sequence}, pieces);
  replied_.store(true, std::memory_order_relaxed);
}

void Endpoint::post_failed(std::uint64_t sequence, std::uint32_t result) {
  const Lock lock(state_mutex_);
  if (failed_result_ != 0 && failed_sequence_ <= sequence) return;
  failed_result_ = result;
  failed_sequence_ = sequence;
  connection_->set_notice(true);
}

bool Endpoint::owes_an_error() {
  const Lock lock(state_mutex_);
  return failed_result_ != 0;
}

void Endpoint::demand_replies() {
  const Lock lock(state_mutex_);
  demands_replies_ = true;
  connection_->set_notice(true);
}

void Endpoint::deliver(std::uint64_t delivery, std::uint64_t offset, Bytes data, Then then) {
  do {
    const Bytes part = data.first(std::min(data.size(), kDeliveryPieceBytes));
    send({.kind = static_cast<std::uint16_t>(wire::FrameKind::kHostData),
          .sequence = delivery,
          .argument = offset},
         {&part, 1}, then);
    offset += part.size();
    data = data.subspan(part.size());
    if (!data.empty()) let_others_send();
  } while (!data.empty() && !closed());
}

void Endpoint::deliver_by_lane(std::uint64_t delivery, std::uint64_t offset, std::uint64_t bytes) {
  std::array<std::byte, sizeof bytes> payload;
  Writer writer(payload);
  writer.write(bytes);
  const Bytes whole(payload);
  send({.kind = static_cast<std::uint16_t>(wire::FrameKind::kHostDataByLane),
        .sequence = delivery,
        .argument = offset},
       {&whole, 1});
}

// A lock that is given up and taken again at once hardly ever changes hands by itself.
void Endpoint::let_others_send() {
  for (int i = 0; i < kTurnsMax && senders_waiting_.load(std::memory_order_relaxed) > 0; ++i) {
    clock_.sleep_for(kTurn);
  }
}

void Endpoint::drop_delivery(std::uint64_t delivery) {
  send(
      {.kind = static_cast<std::uint16_t>(wire::FrameKind::kHostDataDropped), .sequence = delivery},
      {});
}

void Endpoint::push_host_call(std::uint64_t sequence, std::uint64_t token, Bytes payload) {
  send({.kind = static_cast<std::uint16_t>(wire::FrameKind::kHostCall),
        .sequence = sequence,
        .argument = token},
       {&payload, 1});
}

void Endpoint::push_completed(std::uint64_t token, std::uint32_t result) {
  {
    const Lock lock(state_mutex_);
    if (result == 0) result = failed_result_;
  }
  send({.kind = static_cast<std::uint16_t>(wire::FrameKind::kCompleted),
        .sequence = token,
        .argument = result},
       {});
}

void Endpoint::push_output(std::uint32_t stream, Bytes text) {
  while (!text.empty()) {
    const Bytes part = text.first(std::min<std::size_t>(text.size(), wire::kFramePayloadBytesMax));
    send({.kind = static_cast<std::uint16_t>(wire::FrameKind::kOutput), .argument = stream},
         {&part, 1});
    text = text.subspan(part.size());
  }
}

void Endpoint::push_memory(Bytes changes) {
  send({.kind = static_cast<std::uint16_t>(wire::FrameKind::kMemory)}, {&changes, 1});
}

void Endpoint::send(wire::FrameHeader header, std::span<const Bytes> payload, Then then) {
  FLYT_ASSERT(payload.size() < kPiecesPerFrame);
  header.payload_bytes = static_cast<std::uint32_t>(total_size(payload));
  FLYT_ASSERT(header.payload_bytes <= wire::kFramePayloadBytesMax);
  std::array<std::byte, wire::kHeaderBytes> header_bytes;
  Writer writer(header_bytes);
  wire::encode(header, writer);
  std::array<Bytes, kPiecesPerFrame> pieces{Bytes(header_bytes)};
  std::copy(payload.begin(), payload.end(), pieces.begin() + 1);

  senders_waiting_.fetch_add(1, std::memory_order_relaxed);
  const Lock lock(send_mutex_);
  senders_waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (closed()) return;
  if (then == Then::kReply && backlog_.size() + total_size(pieces) <= kDataBeforeReplyBytesMax) {
    for (const Bytes& piece : pieces) backlog_.add(piece);
    backlogged_.store(true, std::memory_order_release);
  } else {
    send_locked(pieces);
  }
}

// Sends, or keeps for later, all of the pieces: half a frame would break the stream.
void Endpoint::send_locked(std::span<Bytes> pieces) {
  if (!backlog_.empty()) send_behind_backlog(pieces);
  if (!flush_locked(backlog_.size() >= kBacklogBytesMax)) return;
  while (std::size_t rest = total_size(pieces)) {
    std::size_t taken = 0;
    if (backlog_.empty()) {
      Result<std::size_t> sent = connection_->write(pieces, Patience::kNow);
      if (!sent) {
        close_with(std::move(sent).error(), false);
        return;
      }
      taken = *sent;
      drop_front(pieces, taken);
      rest -= taken;
    }
    if (taken > 0) continue;
    if (rest <= kBacklogPieceBytesMax) {
      keep_for_later(pieces);
      return;
    }
    if (!wait_for_room() || !flush_locked(true)) return;
  }
}

// What was kept, and as much of the pieces as goes with it, in one write.
void Endpoint::send_behind_backlog(std::span<Bytes> pieces) {
  FLYT_ASSERT(pieces.size() <= kPiecesPerFrame);
  std::array<Bytes, kPiecesPerFrame + 1> all{backlog_.rest()};
  std::copy(pieces.begin(), pieces.end(), all.begin() + 1);
  const std::size_t kept = all.front().size();
  Result<std::size_t> sent = connection_->write(all, Patience::kNow);
  if (!sent) return close_with(std::move(sent).error(), false);
  backlog_.sent(std::min(*sent, kept));
  if (*sent < kept) return;
  backlogged_.store(false, std::memory_order_release);
  drop_front(pieces, *sent - kept);
}

// The main thread sends it when there is room; it may be asleep and must hear of it.
void Endpoint::keep_for_later(std::span<const Bytes> pieces) {
  for (const Bytes& piece : pieces) backlog_.add(piece);
  backlogged_.store(true, std::memory_order_release);
  wakeup_.signal();
}

// False if the session ended meanwhile. `all`: waits until nothing is left.
bool Endpoint::flush_locked(bool all) {
  while (!backlog_.empty()) {
    const Bytes rest = backlog_.rest();
    Result<std::size_t> sent = connection_->write({&rest, 1}, Patience::kNow);
    if (!sent) {
      close_with(std::move(sent).error(), false);
      return false;
    }
    backlog_.sent(*sent);
    if (backlog_.empty()) {
      backlogged_.store(false, std::memory_order_release);
    } else if (*sent == 0) {
      if (!all) return true;
      if (!wait_for_room()) return false;
    }
  }
  return true;
}

bool Endpoint::wait_for_room() {
  connection_->wait(transport::kWritable, system_clock().now() + kSendPatience, nullptr);
  if (closed()) broken_frame_ = true;
  return !closed();
}

void Endpoint::flush_backlog() {
  if (backlog_empty()) return;
  const Lock lock(send_mutex_);
  flush_locked(false);
}

void Endpoint::violation(std::string reason) { end(wire::EndedCode::kProtocolViolation, reason); }

void Endpoint::end(wire::EndedCode code, std::string_view reason) {
  reason = reason.substr(0, wire::kReasonBytesMax);
  if (!note_closed(Error{ErrorCode::kInvalid, std::string(reason)}, false, true)) return;
  send_end(code, reason);
  // The main thread may have seen that the session is closed, and waits for the frame to be out.
  telling_.store(false, std::memory_order_release);
  telling_.notify_all();
}

void Endpoint::send_end(wire::EndedCode code, std::string_view reason) {
  // A sender that waits for room gives up now that the session is closed.
  const Lock lock(send_mutex_);
  const wire::FrameHeader header{.payload_bytes = static_cast<std::uint32_t>(reason.size()),
                                 .kind = static_cast<std::uint16_t>(wire::FrameKind::kEnded),
                                 .sequence = last_sequence(),
                                 .argument = static_cast<std::uint64_t>(code)};
  if (!broken_frame_) {
    std::array<std::byte, wire::kHeaderBytes> header_bytes;
    Writer writer(header_bytes);
    wire::encode(header, writer);
    std::array<Bytes, 2> pieces{Bytes(header_bytes), bytes_of(reason)};
    send_locked(pieces);
  }
  linger_.store(true);
  wake();
}

// The first reason stays; true if this is it.
bool Endpoint::note_closed(Error error, bool in_order, bool telling) {
  const Lock lock(state_mutex_);
  if (closed()) return false;
  telling_.store(telling, std::memory_order_release);
  error_ = std::move(error);
  in_order_.store(in_order, std::memory_order_release);
  closed_.store(true, std::memory_order_release);
  return true;
}

void Endpoint::close_with(Error error, bool in_order) {
  if (note_closed(std::move(error), in_order)) wake();
}

Error Endpoint::error() const {
  const Lock lock(state_mutex_);
  return error_;
}

bool Endpoint::wait_for_hangup(Instant deadline) const {
  return connection_->wait(transport::kHangup, deadline, nullptr) != transport::kNothing;
}

}  // namespace flyt::rpc
