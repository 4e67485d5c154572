#include "rpc/outbox.h"

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>

namespace flyt::rpc {
namespace {

using transport::Patience;

// While the socket is full, somebody must read: the server may be waiting for that. This is how
// often it is looked whether the reader there was has left.
constexpr Duration kReaderCheck = std::chrono::milliseconds(5);

// How long a failed write waits for the reader to find out why.
constexpr Duration kReasonPatience = std::chrono::milliseconds(20);

// lint: allow(globals): an AsThread's, which gives back what it found
constinit thread_local std::uint32_t stands_for = 0;
// lint: allow(globals): a KeptCredits', which gives back what it found
constinit thread_local bool uses_kept_credits = false;

// The number by which the server tells this client's threads apart.
std::uint32_t thread_number() {
  thread_local const auto number = static_cast<std::uint32_t>(::gettid());
  return stands_for != 0 ? stands_for : number;
}

void drop_front(std::span<Bytes>& pieces, std::size_t size) {
  while (!pieces.empty() && size >= pieces.front().size()) {
    size -= pieces.front().size();
    pieces = pieces.subspan(1);
  }
  if (size > 0) pieces.front() = pieces.front().subspan(size);
}

}  // namespace

AsThread::AsThread(std::uint32_t thread) : before_(stands_for) { stands_for = thread; }
AsThread::~AsThread() { stands_for = before_; }

KeptCredits::KeptCredits() : before_(uses_kept_credits) { uses_kept_credits = true; }
KeptCredits::~KeptCredits() { uses_kept_credits = before_; }
bool KeptCredits::used() { return uses_kept_credits; }

Outbox::Outbox(transport::Connection& connection, Ledger& ledger, Inbox& inbox, Loss& loss,
               const Clock& clock, Duration spin, const ChannelOptions& options,
               Unfinished* unfinished)
    : connection_(connection),
      ledger_(ledger),
      inbox_(inbox),
      loss_(loss),
      clock_(clock),
      spin_(spin),
      eager_(connection.eager()),
      ring_bytes_(options.send_buffer_bytes),
      lap_bits_(static_cast<unsigned>(std::bit_width(ring_bytes_ + kSlack - 1))),
      ring_(std::make_unique_for_overwrite<std::byte[]>(ring_bytes_ + kSlack)),
      unfinished_(unfinished),
      not_missed_(options.not_missed) {}

Status Outbox::start() {
  return sender_.start("flyt-send", [this] { run_sender(); });
}

void Outbox::stop() {
  stopping_.store(true);
  sender_wakeup_.signal();
  sender_.join();
}

// The addresses stay: a thread that is late may still write there.
void Outbox::release_memory() {
  constexpr std::uintptr_t kPage = 4096;
  const std::uint64_t base = address_of(ring_.get());
  const std::uint64_t first = (base + kPage - 1) / kPage * kPage;
  const std::uint64_t end = (base + ring_bytes_ + kSlack) / kPage * kPage;
  if (first < end) ::madvise(pointer_at(first), end - first, MADV_DONTNEED);
}

bool Outbox::open(std::size_t payload_bytes, Slot& slot) {
  FLYT_ASSERT(payload_bytes <= wire::kPostPayloadBytesMax);
  const std::size_t frame_bytes = wire::kHeaderBytes + payload_bytes;
  post_role_.take();
  if (!have_credits(frame_bytes) || !(has_space(frame_bytes) || wait_for_space(frame_bytes)) ||
      loss_.lost()) {
    post_role_.give();
    return false;
  }
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  slot.frame = MutableBytes(ring_.get() + within_lap(head), frame_bytes);
  slot.sequence = next_sequence_;
  touched_ = head + frame_bytes;
  return true;
}

// head_ always lies within the ring proper of its lap, so its frame is contiguous; what can be in
// the way is the unsent rest of the lap before. While there is such a rest no further lap is begun:
// lap_end_ remembers one end only, and known_tail_ stays less than two laps behind.
bool Outbox::has_space(std::size_t frame_bytes) {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const auto fits = [&](std::uint64_t tail) {
    return lap_of(head) == lap_of(tail) ||
           within_lap(head) + frame_bytes <=
               std::min<std::uint64_t>(within_lap(tail), ring_bytes_ - 1);
  };
  if (fits(known_tail_)) return true;
  known_tail_ = tail_.load(std::memory_order_acquire);
  return fits(known_tail_);
}

bool Outbox::wait_for_space(std::size_t frame_bytes) {
  while (!has_space(frame_bytes)) {
    const RoleLock lock(send_role_);
    if (has_space(frame_bytes)) return true;
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint64_t lap = lap_of(tail) * lap_bytes();
    if (drain_ring(Patience::kWait, lap + lap_bytes()) == Drained::kLost) return false;
  }
  return true;
}

bool Outbox::wait_for_credits(std::uint64_t frame_bytes) {
  const bool kept = uses_kept_credits;
  if (kept && ledger_.covers(next_sequence_, frame_bytes, kept)) return true;
  credit_waits_.fetch_add(1, std::memory_order_relaxed);
  while (!ledger_.covers(next_sequence_, frame_bytes, kept)) {
    const std::uint64_t sequence = next_sequence_;
    post_role_.give();
    wake_sender();
    const bool waited = inbox_.wait_for_credits(sequence, frame_bytes, kept);
    post_role_.take();
    if (!waited) return false;
  }
  return true;
}

void Outbox::account(const CommandKey& key, std::uint64_t sequence, std::uint64_t frame_bytes) {
  const bool missed =
      key.answer == Answer::kNone && !(key.op < not_missed_.size() && not_missed_[key.op]);
  if (missed) ledger_.missed_sequence.store(sequence, std::memory_order_release);
  next_sequence_ = sequence + 1;
  const std::uint64_t bytes = ledger_.posted_bytes.load(std::memory_order_relaxed) + frame_bytes;
  ledger_.posted_bytes.store(bytes, std::memory_order_release);
  ledger_.posted_sequence.store(sequence, std::memory_order_release);
}

wire::CommandHeader Outbox::header_of(const CommandKey& key, std::uint64_t sequence,
                                      std::size_t payload_bytes) {
  const bool waits = key.answer == Answer::kReply;
  return {.payload_bytes = static_cast<std::uint32_t>(payload_bytes),
          .op = key.op,
          .flags = static_cast<std::uint16_t>(waits ? wire::kWantsReply : 0),
          .sequence = sequence,
          .context = key.context,
          .thread = thread_number()};
}

void Outbox::put_header(MutableBytes frame, const CommandKey& key, std::uint64_t sequence,
                        std::size_t payload_bytes) {
  Writer writer(frame);
  wire::encode(header_of(key, sequence, payload_bytes), writer);
}

void Outbox::publish(const Slot& slot, const CommandKey& key, std::size_t payload_bytes,
                     bool wake) {
  const std::size_t frame_bytes = wire::kHeaderBytes + payload_bytes;
  FLYT_ASSERT(frame_bytes <= slot.frame.size());
  put_header(slot.frame, key, slot.sequence, payload_bytes);
  if (unfinished_ != nullptr) [[unlikely]] {
    unfinished_->add(header_of(key, slot.sequence, payload_bytes),
                     Bytes(slot.frame).subspan(wire::kHeaderBytes, payload_bytes), {});
  }
  account(key, slot.sequence, frame_bytes);
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  newest_[slot.sequence % kNewestMax] = head;
  head += frame_bytes;
  if (within_lap(head) >= ring_bytes_ || may_start_over(head)) {
    lap_end_.store(head, std::memory_order_relaxed);
    head = (lap_of(head) + 1) * lap_bytes();
  }
  if (eager_) {
    head_.store(head, std::memory_order_release);
    post_role_.give();
    if (wake) flush();
    return;
  }
  head_.store(head);
  post_role_.give();
  if (wake && sender_asleep_.load() != 0) wake_and_send(head);
}

// A thread takes tens of microseconds to wake up, which the first commands behind a wait would take
// longer to arrive: who publishes sends them, and the sender what follows. Where it never stays
// awake, each command would be sent by itself.
void Outbox::wake_and_send(std::uint64_t head) {
  wake_sender();
  if (spin_.count() == 0 || !send_role_.try_take()) return;
  drain_ring(Patience::kNow, head);
  send_role_.give();
}

// Frames that are sent as they are published need little room, and soon meet the same cache lines
// again. Not while a part of the lap before is unsent, as has_space() has it.
bool Outbox::may_start_over(std::uint64_t head) const {
  return eager_ && within_lap(head) >= kHotBytes &&
         lap_of(tail_.load(std::memory_order_acquire)) == lap_of(head);
}

// The next lap is written over it, by frames that were given up, too.
bool Outbox::is_intact(std::uint64_t position) const {
  const std::uint64_t lap = lap_of(head_.load(std::memory_order_relaxed));
  const std::uint64_t laps = lap - lap_of(position);
  return laps == 0 || (laps == 1 && touched_ <= position + lap_bytes());
}

std::optional<std::vector<Unfinished::Command>> Outbox::newest_behind(std::uint64_t sequence) {
  const RoleLock lock(post_role_);
  const std::uint64_t count = next_sequence_ - 1 - std::min(sequence, next_sequence_ - 1);
  if (count > kNewestMax) return std::nullopt;
  std::vector<Unfinished::Command> commands;
  for (sequence = next_sequence_ - count; sequence != next_sequence_; ++sequence) {
    const std::uint64_t position = newest_[sequence % kNewestMax];
    if (position == kNotInRing || !is_intact(position)) return std::nullopt;
    const std::byte* frame = ring_.get() + within_lap(position);
    Reader reader(Bytes(frame, wire::kHeaderBytes));
    Unfinished::Command command;
    command.header = wire::decode_command_header(reader);
    if (command.header.sequence != sequence) return std::nullopt;
    const Bytes payload(frame + wire::kHeaderBytes, command.header.payload_bytes);
    command.payload.assign(payload.begin(), payload.end());
    commands.push_back(std::move(command));
  }
  return commands;
}

// Where who publishes also sends, the head is stored without a fence. This is that fence, for who
// leaves the sending to another: whoever acts behind it sees the head.
void Outbox::confirm_head() { head_.fetch_add(0); }

void Outbox::wake_sender() {
  confirm_head();
  if (sender_asleep_.exchange(0) != 0) sender_wakeup_.signal();
}

// Who fails to take the role leaves the work to its holder, who looks again after giving it up.
bool Outbox::take_to_send() {
  if (send_role_.try_take()) return true;
  confirm_head();
  return send_role_.try_take();
}

void Outbox::flush() {
  while (pending() && take_to_send()) {
    const Drained drained = drain_ring(Patience::kNow, UINT64_MAX);
    send_role_.give();
    if (drained == Drained::kAll) continue;
    wake_sender();
    return;
  }
}

// Writes the ring up to `until` or to its head, whichever comes first.
Outbox::Drained Outbox::drain_ring(Patience patience, std::uint64_t until) {
  while (true) {
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint64_t head = std::min(head_.load(), until);
    if (tail >= head) return Drained::kAll;
    const std::uint64_t lap = lap_of(tail);
    // A head on a later lap was stored after the end of this one.
    const bool same_lap = lap_of(head) == lap;
    const std::uint64_t end = same_lap ? head : lap_end_.load(std::memory_order_relaxed);
    if (tail == end) {
      tail_.store((lap + 1) * lap_bytes(), std::memory_order_release);
      continue;
    }
    const Bytes bytes(ring_.get() + within_lap(tail), end - tail);
    Result<std::size_t> sent = connection_.write({&bytes, 1}, Patience::kNow);
    if (!sent) {
      lose(std::move(sent).error(), patience);
      return Drained::kLost;
    }
    count_sent(*sent);
    tail += *sent;
    tail_.store(!same_lap && tail == end ? (lap + 1) * lap_bytes() : tail,
                std::memory_order_release);
    if (*sent > 0) continue;
    if (patience == Patience::kNow) return Drained::kFull;
    if (!wait_for_room()) return Drained::kLost;
  }
}

// Sleeps until the socket may take more, reading meanwhile if nobody else does.
bool Outbox::wait_for_room() {
  const auto wanted = static_cast<transport::ReadySet>(
      transport::kWritable | (inbox_.has_reader() ? 0 : transport::kReadable));
  const Instant deadline = system_clock().now() + kReaderCheck;
  const transport::ReadySet ready = connection_.wait(wanted, deadline, nullptr);
  if ((ready & transport::kReadable) != 0) inbox_.read_if_nobody_does();
  // Nor does it read for ever.
  return !loss_.lost() && inbox_.in_time();
}

// A server that ended the session has told its reason before it hung up, and whoever reads meets
// that first. A caller who reads himself goes on to do so; others give the reader a moment.
void Outbox::lose(Error error, Patience patience) {
  loss_.suspect(error);
  if (patience == Patience::kNow) return;
  const Instant deadline = clock_.now() + kReasonPatience;
  inbox_.read_if_nobody_does();
  while (!loss_.lost() && inbox_.has_reader() && clock_.now() < deadline) {
    clock_.sleep_for(kReasonPatience / 100);
  }
  loss_.declare_end(std::move(error));
}

bool Outbox::write_all(std::span<Bytes> pieces) {
  drop_front(pieces, 0);
  while (!pieces.empty()) {
    Result<std::size_t> sent = connection_.write(pieces, Patience::kNow);
    if (!sent) {
      lose(std::move(sent).error(), Patience::kWait);
      return false;
    }
    count_sent(*sent);
    drop_front(pieces, *sent);
    if (*sent == 0 && !wait_for_room()) return false;
  }
  return true;
}

bool Outbox::send_bulk(const CommandKey& key, Bytes fields, std::span<const Bytes> data,
                       Waiter* waiter, std::uint64_t& sequence) {
  std::size_t payload_bytes = fields.size();
  for (const Bytes& piece : data) payload_bytes += piece.size();
  FLYT_ASSERT(fields.size() <= wire::kBulkFieldsBytesMax);
  FLYT_ASSERT(payload_bytes - fields.size() <= wire::kBulkBytesMax);
  const std::size_t frame_bytes = wire::kHeaderBytes + payload_bytes;

  if (loss_.lost()) return false;
  post_role_.take();
  const bool ready = have_credits(frame_bytes) && !loss_.lost();
  sequence = next_sequence_;
  if (waiter != nullptr) waiter->sequence = sequence;
  if (!ready || (waiter != nullptr && !inbox_.enroll(*waiter, false))) {
    post_role_.give();
    return false;
  }
  if (unfinished_ != nullptr) {
    unfinished_->add(header_of(key, sequence, payload_bytes), fields, data);
  }
  account(key, sequence, frame_bytes);
  newest_[sequence % kNewestMax] = kNotInRing;
  const std::uint64_t before = head_.load(std::memory_order_relaxed);
  // Once the sending role is held, later posts may go on: they are sent after this command.
  send_role_.take();
  post_role_.give();

  std::array<std::byte, wire::kHeaderBytes> header;
  put_header(header, key, sequence, payload_bytes);
  bool sent = drain_ring(Patience::kWait, before) == Drained::kAll;
  std::array<Bytes, transport::kPiecesMax> pieces{Bytes(header), fields};
  std::size_t used = 2;
  while (sent && (used > 0 || !data.empty())) {
    const std::size_t more = std::min(data.size(), pieces.size() - used);
    std::copy_n(data.begin(), more, pieces.begin() + static_cast<std::ptrdiff_t>(used));
    data = data.subspan(more);
    sent = write_all(std::span(pieces).first(used + more));
    used = 0;
  }
  send_role_.give();
  if (pending()) flush();
  return sent;
}

bool Outbox::drain(Instant deadline) {
  const std::uint64_t until = head_.load();
  while (tail_.load() < until) {
    if (loss_.lost()) {
      // The peer may have taken the last byte and gone before its writer could say that it was
      // sent.
      const RoleLock lock(send_role_);
      return tail_.load() >= until;
    }
    if (clock_.now() >= deadline) return false;
    flush();
    if (tail_.load() >= until) return true;
    wait_for_room();
  }
  return true;
}

void Outbox::run_sender() {
  while (!stopping_.load() && !loss_.lost()) {
    if (pending()) {
      const RoleLock lock(send_role_);
      if (drain_ring(Patience::kWait, UINT64_MAX) == Drained::kLost) return;
      continue;
    }
    if (spin_for_work()) continue;
    sender_asleep_.store(1);
    if (!pending() && !stopping_.load()) {
      const transport::ReadySet ready =
          connection_.wait(transport::kHangup, transport::kNever, &sender_wakeup_);
      if ((ready & transport::kHangup) != 0) inbox_.read_if_nobody_does();
    }
    sender_asleep_.store(0);
  }
}

bool Outbox::spin_for_work() {
  if (spin_.count() == 0) return false;
  constexpr int kLooksPerClock = 16;
  const Instant end = clock_.now() + spin_;
  while (!stopping_.load(std::memory_order_relaxed)) {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (pending()) return true;
      relax();
    }
    if (clock_.now() >= end) return false;
  }
  return false;
}

}  // namespace flyt::rpc
