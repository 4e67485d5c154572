#include "rpc/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "rpc/futex.h"

namespace flyt::rpc {
namespace {

using transport::Patience;

// Rows of a strided destination that one read fills at most.
constexpr std::size_t kPiecesPerRead = transport::kPiecesMax - 1;

constexpr Duration kLeavePause = std::chrono::microseconds(50);

// Who reads in passing has other things to do, however much more the server sends.
constexpr std::uint64_t kPassingBytesMax = 16 * kMiB;

bool settled(const Waiter& waiter) {
  const std::uint32_t state = waiter.state.load(std::memory_order_acquire);
  return state == Waiter::kDone || state == Waiter::kLost;
}

}  // namespace

Inbox::Inbox(transport::Connection& connection, Ledger& ledger, Deliveries& deliveries,
             PushHandler& pushes, Loss& loss, const Clock& clock, Duration spin)
    : connection_(connection),
      ledger_(ledger),
      deliveries_(deliveries),
      pushes_(pushes),
      loss_(loss),
      clock_(clock),
      spin_(spin) {
  pieces_.reserve(transport::kPiecesMax);
}

void Inbox::limit_spin(Duration most) {
  Duration spin = spin_.load(std::memory_order_relaxed);
  while (most < spin && !spin_.compare_exchange_weak(spin, most, std::memory_order_relaxed)) {
  }
}

bool Inbox::enroll(Waiter& waiter, bool reads_at_once) {
  const Lock lock(mutex_);
  // release_all() runs under this lock after the loss was declared, so nobody is left behind.
  if (loss_.lost()) return false;
  add(waiter);
  if (reads_at_once) take_role(waiter);
  return true;
}

void Inbox::add(Waiter& waiter) {
  waiter.enrolled = true;
  waiter.next = first_;
  if (first_ != nullptr) first_->previous = &waiter;
  first_ = &waiter;
  if (waiter.reply == nullptr) return;
  Waiter*& bucket = buckets_[waiter.sequence % kBuckets];
  waiter.next_in_bucket = bucket;
  bucket = &waiter;
}

bool Inbox::wait_for_credits(std::uint64_t sequence, std::uint64_t frame_bytes, bool kept) {
  Waiter waiter;
  {
    const Lock lock(mutex_);
    if (loss_.lost()) return false;
    // An acknowledgement is counted before those who wait are woken: one that came before this lock
    // is seen here, and there may not be another.
    if (ledger_.covers(sequence, frame_bytes, kept)) return true;
    add(waiter);
  }
  return wait(waiter);
}

void Inbox::take_role(Waiter& waiter) {
  if (reader_present_.load(std::memory_order_relaxed) || settled(waiter)) return;
  reader_present_.store(true, std::memory_order_relaxed);
  waiter.reader = true;
}

bool Inbox::wait(Waiter& waiter) {
  while (true) {
    if (!waiter.reader) {
      const Lock lock(mutex_);
      take_role(waiter);
    }
    if (waiter.reader) {
      read_for(waiter);
      leave_role();
      return waiter.state.load(std::memory_order_acquire) == Waiter::kDone;
    }
    std::uint32_t state = Waiter::kWaiting;
    if (waiter.state.compare_exchange_strong(state, Waiter::kAsleep)) state = Waiter::kAsleep;
    while (state == Waiter::kAsleep) {
      futex_wait(waiter.state, Waiter::kAsleep);
      state = waiter.state.load(std::memory_order_acquire);
    }
    if (state == Waiter::kDone) return true;
    if (state == Waiter::kLost) return false;
    // Promoted, unless the answer comes just now. Another thread may be quicker to take the role;
    // it promotes again when it leaves.
    waiter.state.compare_exchange_strong(state, Waiter::kWaiting);
  }
}

// Reads until the waiter's state is final.
void Inbox::read_for(Waiter& waiter) {
  const Duration spin = spin_.load(std::memory_order_relaxed);
  bool spinning = spin.count() > 0;
  const Instant spin_end = spinning ? clock_.now() + spin : Instant{};
  while (true) {
    if (!run_frames(Frames::kBegun, &waiter)) break;
    if (settled(waiter)) return;
    if (spinning && clock_.now() > spin_end) spinning = false;
    if (!read_more(spinning ? Patience::kNow : Patience::kWait)) break;
    if (spinning) relax();
  }
  release_all();
}

void Inbox::leave_role() {
  // What the buffer holds whole is served now: the next reader may come much later.
  if (!loss_.lost() && !run_frames(Frames::kWhole, nullptr)) release_all();
  const Lock lock(mutex_);
  reader_present_.store(false, std::memory_order_relaxed);
  if (first_ != nullptr) settle(*first_, Waiter::kPromoted);
}

void Inbox::read_if_nobody_does() {
  {
    const Lock lock(mutex_);
    if (reader_present_.load(std::memory_order_relaxed)) return;
    reader_present_.store(true, std::memory_order_relaxed);
  }
  const std::uint64_t last = bytes_received() + kPassingBytesMax;
  while (true) {
    bool going = run_frames(Frames::kBegun, nullptr, last);
    const std::uint64_t before = bytes_received();
    if (going && before >= last) break;
    going = going && read_more(Patience::kNow);
    if (!going) release_all();
    if (!going || bytes_received() == before) break;
  }
  leave_role();
}

// Whoever changes the state last touches the waiter: it may be gone afterwards.
void Inbox::settle(Waiter& waiter, Waiter::State state) {
  const std::atomic<std::uint32_t>* address = &waiter.state;
  if (waiter.state.exchange(state, std::memory_order_acq_rel) == Waiter::kAsleep) {
    futex_wake_one(address);
  }
}

void Inbox::remove(Waiter& waiter) {
  if (waiter.previous != nullptr) waiter.previous->next = waiter.next;
  if (waiter.next != nullptr) waiter.next->previous = waiter.previous;
  if (first_ == &waiter) first_ = waiter.next;
  if (waiter.reply == nullptr) return;
  Waiter** at = &buckets_[waiter.sequence % kBuckets];
  while (*at != &waiter) at = &(*at)->next_in_bucket;
  *at = waiter.next_in_bucket;
}

// The session is lost: nobody waits any longer.
void Inbox::release_all() {
  FLYT_ASSERT(loss_.lost());
  const Lock lock(mutex_);
  while (first_ != nullptr) {
    Waiter& waiter = *first_;
    remove(waiter);
    if (waiter.reply != nullptr) unanswered_.push_back({waiter.sequence, waiter.op});
    settle(waiter, Waiter::kLost);
  }
}

std::vector<Unanswered> Inbox::unanswered() {
  release_all();
  // Its connection is shut down: whoever reads it finds that out.
  while (has_reader()) {
    clock_.sleep_for(kLeavePause);
    release_all();
  }
  const Lock lock(mutex_);
  return unanswered_;
}

Waiter* Inbox::claim(std::uint64_t sequence) {
  const Lock lock(mutex_);
  Waiter* waiter = buckets_[sequence % kBuckets];
  while (waiter != nullptr && waiter->sequence != sequence) waiter = waiter->next_in_bucket;
  if (waiter != nullptr) remove(*waiter);
  return waiter;
}

bool Inbox::broken(std::string_view rule) {
  loss_.declare(Error{ErrorCode::kLost, "protocol broken by the server: " + std::string(rule)});
  return false;
}

// Something can be read, or may be waited for without an end. False: the session is lost.
bool Inbox::arrives_in_time() {
  const Instant deadline = answer_by_.load(std::memory_order_relaxed);
  if (deadline == Instant{}) return true;
  while (in_time()) {
    if (connection_.wait(transport::kReadable, deadline, nullptr) != transport::kNothing) {
      return true;
    }
  }
  return false;
}

bool Inbox::in_time() {
  const Instant deadline = answer_by_.load(std::memory_order_relaxed);
  if (deadline == Instant{} || clock_.now() < deadline) return true;
  loss_.declare(Error{ErrorCode::kTimeout, "the server does not answer"});
  return false;
}

// Adds to the buffer what has arrived. False: the session is lost.
bool Inbox::read_more(Patience patience) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == buffer_.size()) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (patience == Patience::kWait && !arrives_in_time()) return false;
  const MutableBytes room = MutableBytes(buffer_).subspan(end_);
  Result<std::size_t> got = connection_.read({&room, 1}, patience);
  if (!got) {
    loss_.declare_end(std::move(got).error());
    return false;
  }
  end_ += *got;
  bytes_received_.fetch_add(*got, std::memory_order_relaxed);
  return true;
}

// Runs frames from the buffer: those that have begun to arrive, reading their rest, or just those
// that are there whole. Stops when `until` (may be null) is settled, or so many bytes have been
// received since the beginning. False: the session is lost.
bool Inbox::run_frames(Frames which, const Waiter* until, std::uint64_t bytes_until) {
  while (end_ - begin_ >= wire::kHeaderBytes &&
         bytes_received_.load(std::memory_order_relaxed) < bytes_until) {
    Reader reader(Bytes(buffer_).subspan(begin_, wire::kHeaderBytes));
    const wire::FrameHeader header = wire::decode_frame_header(reader);
    const std::string_view problem = wire::problem_with(header);
    if (!problem.empty()) return broken(problem);
    const bool whole = end_ - begin_ - wire::kHeaderBytes >= header.payload_bytes;
    if (which == Frames::kWhole && !whole) return true;
    begin_ += wire::kHeaderBytes;
    if (!run_frame(header)) return false;
    if (until != nullptr && settled(*until)) return true;
  }
  return true;
}

bool Inbox::run_frame(const wire::FrameHeader& header) {
  switch (static_cast<wire::FrameKind>(header.kind)) {
    case wire::FrameKind::kReply:
      return on_reply(header);
    case wire::FrameKind::kAck:
      return on_ack(header);
    case wire::FrameKind::kHostData:
      return on_host_data(header);
    case wire::FrameKind::kHostDataByLane:
      return on_host_data_by_lane(header);
    case wire::FrameKind::kHostDataDropped:
    case wire::FrameKind::kHostCall:
    case wire::FrameKind::kOutput:
    case wire::FrameKind::kCompleted:
    case wire::FrameKind::kMemory:
      return on_push(header);
    case wire::FrameKind::kEnded:
      return on_ended(header);
  }
  return broken("frame of an unknown kind");
}

bool Inbox::on_reply(const wire::FrameHeader& header) {
  Waiter* waiter = claim(header.sequence);
  if (waiter == nullptr) return broken("reply nobody asked for");
  Reply& reply = *waiter->reply;
  std::array<std::byte, sizeof(wire::ReplyPrefix)> prefix;
  const bool complete =
      take_payload(prefix) && take_payload(reply.prepare(header.payload_bytes - prefix.size()));
  if (complete) {
    Reader reader(prefix);
    reply.prefix_ = wire::decode_reply_prefix(reader);
  }
  if (!complete) {
    const Lock lock(mutex_);
    unanswered_.push_back({waiter->sequence, waiter->op});
  }
  settle(*waiter, complete ? Waiter::kDone : Waiter::kLost);
  return complete;
}

bool Inbox::on_ack(const wire::FrameHeader& header) {
  const bool sane = header.sequence >= ledger_.acked_sequence.load(std::memory_order_relaxed) &&
                    header.sequence <= ledger_.posted_sequence.load(std::memory_order_acquire) &&
                    header.argument >= ledger_.acked_bytes.load(std::memory_order_relaxed) &&
                    header.argument <= ledger_.posted_bytes.load(std::memory_order_acquire);
  if (!sane) return broken("acknowledgement of what was not sent");
  ledger_.acked_sequence.store(header.sequence, std::memory_order_release);
  ledger_.acked_bytes.store(header.argument, std::memory_order_release);

  const Lock lock(mutex_);
  for (Waiter* at = first_; at != nullptr;) {
    Waiter* waiter = std::exchange(at, at->next);
    if (waiter->reply != nullptr) continue;
    remove(*waiter);
    settle(*waiter, Waiter::kDone);
  }
  return true;
}

bool Inbox::on_host_data(const wire::FrameHeader& header) {
  const std::uint64_t id = header.sequence;
  Result<Deliveries::Incoming> incoming =
      deliveries_.begin(id, header.argument, header.payload_bytes);
  if (!incoming) return broken(incoming.error().message);
  if (!incoming->destination) return skip_payload(header.payload_bytes);

  bool arrived = true;
  std::uint64_t done = 0;
  while (arrived && done < header.payload_bytes) {
    pieces_.clear();
    const std::uint64_t part =
        Deliveries::pieces(*incoming->destination, header.argument + done,
                           header.payload_bytes - done, kPiecesPerRead, pieces_);
    arrived = take_pieces(pieces_);
    done += part;
  }
  const bool ended = deliveries_.finish(id, arrived ? header.payload_bytes : 0);
  if (arrived && ended) pushes_.on_delivered(id, false);
  return arrived;
}

// What comes after this frame may say that the data is there, so it waits for it.
bool Inbox::on_host_data_by_lane(const wire::FrameHeader& header) {
  std::array<std::byte, sizeof(std::uint64_t)> payload;
  if (!take_payload(payload)) return false;
  Reader reader(payload);
  const auto size = reader.take<std::uint64_t>();
  Result<bool> ended = deliveries_.await(header.sequence, header.argument, size);
  if (!ended && ended.error().code == ErrorCode::kLost) {
    loss_.declare_end(std::move(ended).error());
    return false;
  }
  if (!ended) return broken(ended.error().message);
  if (*ended) pushes_.on_delivered(header.sequence, false);
  return true;
}

bool Inbox::on_push(const wire::FrameHeader& header) {
  large_.resize(header.payload_bytes);
  if (!take_payload(large_)) return false;
  switch (static_cast<wire::FrameKind>(header.kind)) {
    case wire::FrameKind::kHostDataDropped: {
      Result<bool> detached = deliveries_.drop(header.sequence);
      if (!detached) return broken(detached.error().message);
      if (*detached) pushes_.on_delivered(header.sequence, true);
      return true;
    }
    case wire::FrameKind::kHostCall:
      return pushes_.on_host_call(header.sequence, header.argument, large_) ||
             broken("more host functions than may be under way");
    case wire::FrameKind::kOutput:
      pushes_.on_output(static_cast<std::uint32_t>(header.argument), large_);
      return true;
    case wire::FrameKind::kCompleted:
      pushes_.on_completed(header.sequence, header.argument);
      return true;
    case wire::FrameKind::kMemory:
      return pushes_.on_memory(large_) || broken("memory that it may not write");
    case wire::FrameKind::kReply:
    case wire::FrameKind::kAck:
    case wire::FrameKind::kHostData:
    case wire::FrameKind::kHostDataByLane:
    case wire::FrameKind::kEnded:
      break;
  }
  return broken("frame of another kind");
}

bool Inbox::on_ended(const wire::FrameHeader& header) {
  large_.resize(header.payload_bytes);
  if (!take_payload(large_)) return false;
  loss_.declare(Error{ErrorCode::kLost, "ended by the server: " +
                                            plain_text(text_of(large_), wire::kReasonBytesMax)});
  return false;
}

bool Inbox::take_payload(MutableBytes into) {
  if (into.empty()) return true;
  pieces_.assign(1, into);
  return take_pieces(pieces_);
}

// Fills the pieces, first from the buffer, then from the socket; what the socket gives beyond them
// goes to the buffer. Spoils `pieces`.
bool Inbox::take_pieces(std::vector<MutableBytes>& pieces) {
  std::size_t first = 0;
  for (; first < pieces.size(); ++first) {
    MutableBytes& piece = pieces[first];
    const std::size_t part = std::min(piece.size(), end_ - begin_);
    std::memcpy(piece.data(), buffer_.data() + begin_, part);
    begin_ += part;
    piece = piece.subspan(part);
    if (!piece.empty()) break;
  }
  if (first == pieces.size()) return true;
  begin_ = end_ = 0;
  pieces.emplace_back(buffer_);
  while (first + 1 < pieces.size()) {
    if (!arrives_in_time()) return false;
    Result<std::size_t> got = connection_.read(std::span(pieces).subspan(first), Patience::kWait);
    if (!got) {
      loss_.declare_end(std::move(got).error());
      return false;
    }
    bytes_received_.fetch_add(*got, std::memory_order_relaxed);
    std::size_t left = *got;
    while (left > 0 && first + 1 < pieces.size()) {
      const std::size_t part = std::min(left, pieces[first].size());
      pieces[first] = pieces[first].subspan(part);
      left -= part;
      if (pieces[first].empty()) ++first;
    }
    end_ = left;
  }
  return true;
}

bool Inbox::skip_payload(std::size_t size) {
  std::array<std::byte, 4096> waste;
  while (size > 0) {
    const std::size_t part = std::min(size, waste.size());
    if (!take_payload(MutableBytes(waste).first(part))) return false;
    size -= part;
  }
  return true;
}

}  // namespace flyt::rpc
