#include "rpc/channel.h"

#include <algorithm>
#include <utility>

#include "rpc/channel_core.h"
#include "rpc/greeting.h"
#include "transport/shm.h"

namespace flyt::rpc {

MutableBytes Reply::prepare(std::size_t size) {
  size_ = size;
  if (size <= small_.size()) {
    large_.clear();
    return MutableBytes(small_).first(size);
  }
  large_.resize(size);
  return large_;
}

Post::Post(Post&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      writer_(other.writer_),
      slot_(other.slot_),
      context_(other.context_),
      op_(other.op_),
      answer_(other.answer_) {}

Post::~Post() {
  if (core_ != nullptr) core_->cancel(*this);
}

void Post::commit() {
  FLYT_ASSERT(core_ != nullptr && answer_ == Answer::kNone);
  core_->commit(*this);
}

Delivery::Delivery(Delivery&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)), id_(other.id_) {}

Delivery::~Delivery() {
  if (core_ != nullptr && !core_->loss_.abandoned()) core_->deliveries_.forget(id_);
}

bool Delivery::complete() const { return core_->deliveries_.complete(id_); }

ChannelCore::ChannelCore(std::unique_ptr<transport::Connection> connection, wire::Welcome welcome,
                         const wire::Limits& limits, PushHandler& pushes,
                         const ChannelOptions& options)
    : connection_(std::move(connection)),
      welcome_(std::move(welcome)),
      pushes_(pushes),
      clock_(*options.clock),
      observer_(options.observer),
      loss_(*connection_, pushes),
      ledger_(limits),
      unfinished_(options.keeps_unfinished ? std::make_unique<Unfinished>() : nullptr),
      inbox_(*connection_, ledger_, deliveries_, pushes, loss_, clock_,
             spin_on(4, options.reply_spin)),
      outbox_(*connection_, ledger_, inbox_, loss_, clock_,
              std::max(spin_on(4, options.sender_spin), spin_on(2, options.sender_spin / 5)),
              options, unfinished_.get()),
      background_(*connection_, inbox_, deliveries_, loss_, clock_),
      lanes_(options.lanes, welcome_.token, deliveries_, inbox_, loss_, clock_) {
  loss_.on_loss([this] {
    lanes_.shut_down();
    deliveries_.wake_all();
  });
  if (observer_ != nullptr) loss_.watch();
}

void ChannelCore::begin(std::uint16_t op, std::size_t payload_bytes, std::uint32_t context,
                        Answer answer, Post& post) {
  if (loss_.notable()) [[unlikely]] {
    begin_watched(op, payload_bytes, context, answer, post);
  } else {
    begin_at_once(op, payload_bytes, context, answer, post);
  }
}

void ChannelCore::begin_watched(std::uint16_t op, std::size_t payload_bytes, std::uint32_t context,
                                Answer answer, Post& post) {
  if (loss_.lost()) return;
  const Instant start = clock_.now();
  begin_at_once(op, payload_bytes, context, answer, post);
  if (post.core_ == nullptr || observer_ == nullptr) return;
  observer_->on_command(op, post.slot_.sequence, wire::kHeaderBytes + payload_bytes,
                        clock_.now() - start);
}

inline void ChannelCore::begin_at_once(std::uint16_t op, std::size_t payload_bytes,
                                       std::uint32_t context, Answer answer, Post& post) {
  if (!outbox_.open(payload_bytes, post.slot_)) return;
  post.core_ = this;
  post.writer_ = Writer(post.slot_.frame.subspan(wire::kHeaderBytes));
  post.op_ = op;
  post.context_ = context;
  post.answer_ = answer;
}

void ChannelCore::commit(Post& post) {
  post.core_ = nullptr;
  outbox_.publish(post.slot_, {post.op_, post.context_, Answer::kNone}, post.writer_.used(), true);
}

void ChannelCore::cancel(Post& post) {
  post.core_ = nullptr;
  outbox_.cancel();
}

Status ChannelCore::call(Post& post, Reply& reply) {
  Waiter waiter;
  waiter.sequence = post.slot_.sequence;
  waiter.op = post.op_;
  waiter.reply = &reply;
  if (!inbox_.enroll(waiter, true)) {
    cancel(post);
    return loss_.error();
  }
  post.core_ = nullptr;
  outbox_.publish(post.slot_, {post.op_, post.context_, Answer::kReply}, post.writer_.used(),
                  false);
  // What was posted before goes out now, and may have to wait for room on its way.
  const Instant start = observer_ == nullptr ? Instant{} : clock_.now();
  outbox_.flush();
  return wait_for_reply(waiter, post.op_, start);
}

Status ChannelCore::wait_for_reply(Waiter& waiter, std::uint16_t op, Instant start) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (!inbox_.wait(waiter)) return loss_.error();
  if (observer_ != nullptr) {
    const std::size_t bytes =
        wire::kHeaderBytes + sizeof(wire::ReplyPrefix) + waiter.reply->fields().size();
    observer_->on_answer(op, bytes, clock_.now() - start);
  }
  return {};
}

bool ChannelCore::send_bulk(const CommandKey& key, Bytes fields, std::span<const Bytes> data,
                            Waiter* waiter, std::uint64_t& sequence) {
  if (observer_ == nullptr) return outbox_.send_bulk(key, fields, data, waiter, sequence);
  const Instant start = clock_.now();
  if (!outbox_.send_bulk(key, fields, data, waiter, sequence)) return false;
  std::size_t bytes = wire::kHeaderBytes + fields.size();
  for (const Bytes& piece : data) bytes += piece.size();
  observer_->on_command(key.op, sequence, bytes, clock_.now() - start);
  return true;
}

namespace {

// A server may take a part of a window.
bool offers(const std::vector<wire::Window>& offered, const wire::Window& taken) {
  return std::any_of(offered.begin(), offered.end(), [&](const wire::Window& window) {
    return window.purpose == taken.purpose && window.base == taken.base &&
           taken.bytes <= window.bytes;
  });
}

}  // namespace

Result<std::unique_ptr<Channel>> Channel::open(std::unique_ptr<transport::Connection> connection,
                                               const wire::ClientHello& hello, Instant deadline,
                                               PushHandler& pushes, const ChannelOptions& options) {
  if (!hello.shared_memory) transport::refuse_files(connection->fd());
  Status said = write_hello(*connection, wire::encode(hello), deadline);
  // A server that refuses at once may have closed already; its reason is still there to be read.
  Result<std::vector<std::byte>> answer = read_hello(*connection, deadline);
  if (!answer) return said ? std::move(answer).error() : std::move(said).error();
  Result<wire::Welcome> welcome = wire::decode_answer(*answer);
  if (!welcome) return std::move(welcome).error();
  if (welcome->version < hello.version_min || welcome->version > hello.version_max) {
    return Error{ErrorCode::kInvalid, "hello: the server chose a version that was not offered"};
  }
  Result<wire::Limits> limits = wire::common_limits(hello.limits, welcome->limits);
  if (!limits) return std::move(limits).error();

  for (const wire::Window& window : welcome->windows) {
    if (!offers(hello.windows, window)) {
      return Error{ErrorCode::kInvalid, "hello: the server took addresses that were not offered"};
    }
  }
  if (welcome->shared_memory) {
    if (!hello.shared_memory) {
      return Error{ErrorCode::kInvalid, "hello: the server chose shared memory unasked"};
    }
    auto shared = transport::take_rings(std::move(connection), deadline);
    if (!shared) return std::move(shared).error();
    connection = std::move(*shared);
  }
  auto core = std::make_unique<ChannelCore>(std::move(connection), std::move(*welcome), *limits,
                                            pushes, options);
  Status started = core->outbox_.start();
  if (!started) return std::move(started).error();
  return std::unique_ptr<Channel>(std::make_unique<Channel>(Private{}, std::move(core)));
}

Channel::Channel(Private, std::unique_ptr<ChannelCore> core)
    : owned_(std::move(core)), core_(owned_.get()) {}

Channel::~Channel() {
  if (owned_ == nullptr) return;  // Another channel goes on with it.
  shut_down("the channel was closed");
  owned_->end();
}

void ChannelCore::end() {
  outbox_.stop();
  background_.stop();
  lanes_.stop();
}

void Channel::go_on_with(std::unique_ptr<Channel> other) {
  FLYT_ASSERT(lost());
  const Lock lock(expect_mutex_);
  ChannelCore& before = core();
  before.end();
  before.outbox_.release_memory();
  before.connection_->release_memory();
  const std::int64_t expected = before.background_.expected();
  if (expected != 0) other->core().background_.expect(expected);
  other->core().deliveries_.go_on_behind(before.deliveries_);
  retired_.push_back(std::move(owned_));
  owned_ = std::move(other->owned_);
  core_.store(owned_.get(), std::memory_order_release);
}

const Unfinished* Channel::unfinished() const { return core().unfinished_.get(); }

bool Channel::cut() const { return core().loss_.cut(); }

std::vector<Unanswered> Channel::unanswered() {
  core().outbox_.settle();
  return core().inbox_.unanswered();
}

std::optional<std::vector<Unfinished::Command>> Channel::newest_behind(std::uint64_t sequence) {
  return core().outbox_.newest_behind(sequence);
}

const wire::Welcome& Channel::welcome() const { return core().welcome_; }

Post Channel::begin(std::uint16_t op, std::size_t payload_bytes, std::uint32_t context,
                    Answer answer) {
  Post post;
  core().begin(op, payload_bytes, context, answer, post);
  return post;
}

Status Channel::call(Post post, Reply& reply) {
  if (!post) return core().loss_.error();
  FLYT_ASSERT(post.answer_ == Answer::kReply);
  // The one that it was begun with: the session may go on with another one meanwhile.
  return post.core_->call(post, reply);
}

Result<std::uint64_t> Channel::post_bulk(std::uint16_t op, std::uint32_t context, Bytes fields,
                                         std::span<const Bytes> data) {
  std::uint64_t sequence = 0;
  ChannelCore& at = core();
  if (at.send_bulk({op, context, Answer::kNone}, fields, data, nullptr, sequence)) {
    return sequence;
  }
  return at.loss_.error();
}

Status Channel::call_bulk(std::uint16_t op, std::uint32_t context, Bytes fields,
                          std::span<const Bytes> data, Reply& reply) {
  Waiter waiter;
  waiter.op = op;
  waiter.reply = &reply;
  std::uint64_t sequence = 0;
  const CommandKey key{op, context, Answer::kReply};
  // Once enrolled the waiter has to be waited for, sent or not: the reader knows its address.
  ChannelCore& at = core();
  const bool sent = at.send_bulk(key, fields, data, &waiter, sequence);
  if (!sent && !waiter.enrolled) return at.loss_.error();
  return at.wait_for_reply(waiter, op, at.observer_ == nullptr ? Instant{} : at.clock_.now());
}

void Channel::answer_by(Instant deadline) { core().inbox_.answer_by(deadline); }

unsigned Channel::open_lanes() { return lost() ? 0 : core().lanes_.open(); }

LaneSend Channel::send_by_lanes(Bytes data, const std::function<void(const SentBlock&)>& on_sent,
                                std::size_t ahead_max) {
  CommandObserver* const observer = core().observer_;
  if (observer == nullptr) return core().lanes_.send(data, ahead_max, on_sent);
  return core().lanes_.send(data, ahead_max, [&](const SentBlock& block) {
    observer->on_lane(block.bytes);
    on_sent(block);
  });
}

Delivery Channel::expect(const Destination& destination) {
  if (core().observer_ != nullptr) core().observer_->on_expected(destination.bytes());
  return Delivery(&core(), core().deliveries_.expect(destination, false));
}

std::uint64_t Channel::expect_detached(const Destination& destination) {
  if (core().observer_ != nullptr) core().observer_->on_expected(destination.bytes());
  ChannelCore& at = core();
  const std::uint64_t id = at.deliveries_.expect(destination, true);
  if (!at.loss_.lost()) at.background_.expect(0);
  return id;
}

void Channel::forget(std::uint64_t delivery) {
  if (!core().loss_.abandoned()) core().deliveries_.forget(delivery);
}

void Channel::expect_pushes(std::int64_t change) {
  if (core().loss_.abandoned()) return;
  const Lock lock(expect_mutex_);
  core().background_.expect(change);
}

void Channel::take_in() {
  if (!lost()) core().inbox_.read_if_nobody_does();
}

Status Channel::close(Instant deadline) {
  // Nor for credits, or the rest of a frame that has begun to arrive.
  answer_by(deadline);
  Post goodbye = begin(static_cast<std::uint16_t>(wire::ProtocolOp::kGoodbye), 0, 0);
  if (!goodbye) return core().loss_.error();
  goodbye.commit();
  bool told = core().outbox_.drain(deadline);
  // The server closes when it has read everything. Until then what it still sends is read: a
  // socket closed with unread bytes in it may take the last commands with it.
  while (told && !lost()) {
    if (core().clock_.now() >= deadline) told = false;
    core().connection_->wait(transport::kReadable, deadline, nullptr);
    core().inbox_.read_if_nobody_does();
  }
  // Who waited for something of the server's at the deadline has found the session lost.
  if (lost() && error().code == ErrorCode::kTimeout) told = false;
  shut_down("the channel was closed");
  if (told) return {};
  return Error{ErrorCode::kTimeout, "the server did not take the goodbye in time"};
}

void Channel::shut_down(std::string_view reason) {
  ChannelCore& at = core();
  if (at.loss_.abandoned()) return;
  at.loss_.declare(Error{ErrorCode::kLost, std::string(reason)});
  at.inbox_.read_if_nobody_does();
}

void Channel::abandon_after_fork() {
  core().loss_.abandon();
  core().connection_->abandon();
  core().lanes_.abandon();
}

bool Channel::noticed() const {
  const ChannelCore& at = core();
  return at.loss_.lost() || at.connection_->notice();
}

void Channel::show_waiting() { core().connection_->show_waiting(); }

void Channel::limit_reply_spin(Duration most) { core().inbox_.limit_spin(most); }

void Channel::note_wait(std::uint16_t op, Instant since) {
  ChannelCore& at = core();
  at.calls_.fetch_add(1, std::memory_order_relaxed);
  if (at.observer_ != nullptr) at.observer_->on_answer(op, 0, at.clock_.now() - since);
}

int Channel::shared_file() const { return core().connection_->shared_file(); }

bool Channel::lost() const { return core().loss_.lost(); }

Error Channel::error() const { return core().loss_.error(); }

std::uint64_t Channel::newest() const {
  return core().ledger_.posted_sequence.load(std::memory_order_acquire);
}

std::uint64_t Channel::newest_missed() const {
  return core().ledger_.missed_sequence.load(std::memory_order_acquire);
}

ChannelCounters Channel::counters() const {
  return {.commands = newest(),
          .calls = core().calls_.load(std::memory_order_relaxed),
          .bytes_sent = core().outbox_.bytes_sent() + core().lanes_.bytes_sent(),
          .bytes_received = core().inbox_.bytes_received() + core().lanes_.bytes_received(),
          .credit_waits = core().outbox_.credit_waits()};
}

}  // namespace flyt::rpc
