#include "client/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "client/code/code_state.h"
#include "client/graphs/graphs.h"
#include "client/memory_state.h"
#include "client/recovery/recovery.h"
#include "client/recovery/recovery_thread.h"
#include "client/settings.h"
#include "commands/graph.h"
#include "commands/module.h"
#include "commands/ops.h"
#include "cuda/sticky.h"
#include "rpc/credential.h"
#include "transport/shm.h"
#include "transport/transport.h"

namespace flyt::client {
namespace {

// The program's name, as the server's log shows it.
std::string program_name() { return ::program_invocation_short_name; }

// A session's process may end before it has greeted, and not for what this client does: on a GPU
// that processes share, a fault of one ends all.
constexpr int kTriesMax = 4;
constexpr Duration kPauseFirst = std::chrono::milliseconds(5);
// How often it is looked whether another server has come.
constexpr Duration kNextPause = std::chrono::milliseconds(20);

wire::ClientHello hello(bool recoverable, std::string credential) {
  wire::ClientHello hello;
  hello.recoverable = recoverable;
  hello.credential = std::move(credential);
  hello.name = program_name();
  hello.process_id = static_cast<std::uint32_t>(::getpid());
  hello.user_id = static_cast<std::uint32_t>(::getuid());
  hello.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
  return hello;
}

// Hashing code costs as much as sending it within a machine, and much less than a network; and only
// code that has a name is foreseen.
CodeSending sending_of(const transport::Url& url) {
  switch (url.code) {
    case transport::CodeOption::kSend:
      return {};
    case transport::CodeOption::kAuto:
    case transport::CodeOption::kStore:
      return {.named = true};
    case transport::CodeOption::kPack:
      return {.named = true, .packed = true};
  }
  return {};
}

// Within a machine of few cores they would only take them from the program.
constexpr unsigned kLanesMost = 8;
static_assert(transport::kLanesOptionMax == wire::kLanesMax);

wire::LanePacking packing_of(transport::CompressOption option) {
  switch (option) {
    case transport::CompressOption::kAuto:
      return wire::LanePacking::kAuto;
    case transport::CompressOption::kOff:
      return wire::LanePacking::kOff;
    case transport::CompressOption::kOn:
      return wire::LanePacking::kOn;
  }
  return wire::LanePacking::kAuto;
}

rpc::LaneOptions lanes_of(const transport::Url& url, Duration patience) {
  if (url.kind != transport::Kind::kTcp) return {};
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  const auto half = static_cast<unsigned>(std::max(cores / 2, 0L));
  const unsigned usual = half < 2 ? 0 : std::min(half, kLanesMost);
  return {.count = url.lanes.value_or(usual),
          .connect = [url](Instant deadline) { return transport::connect(url, deadline); },
          .patience = patience,
          .packing = packing_of(url.compress)};
}

}  // namespace

// Hands on what the server sends by itself. Nothing is expected before memory() is set.
class Session::Pushes final : public rpc::PushHandler {
 public:
  explicit Pushes(const Log& log) : log_(log) {}
  // The session may go on: who finds that out tells the log.
  void set_quiet(bool quiet) { quiet_.store(quiet); }
  void set_memory(MemoryState* memory) { memory_.store(memory, std::memory_order_release); }

  bool on_host_call(std::uint64_t, std::uint64_t token, Bytes payload) override {
    MemoryState* memory = memory_.load(std::memory_order_acquire);
    return memory == nullptr || memory->on_host_call(token, payload);
  }
  // Through libc's own stdout, so that it mixes with what the program prints.
  void on_output(std::uint32_t stream, Bytes text) override {
    std::FILE* file = stream == 2 ? stderr : stdout;
    std::fwrite(text.data(), 1, text.size(), file);
  }
  void on_completed(std::uint64_t token, std::uint64_t result) override {
    if (MemoryState* memory = memory_.load(std::memory_order_acquire)) {
      if (!memory->loads().on_completed(token)) memory->watches().on_completed(token, result);
    }
  }
  bool on_memory(Bytes changes) override {
    MemoryState* memory = memory_.load(std::memory_order_acquire);
    return memory != nullptr && memory->mirror().on_changes(changes);
  }
  void on_delivered(std::uint64_t delivery, bool dropped) override {
    if (MemoryState* memory = memory_.load(std::memory_order_acquire)) {
      memory->on_delivered(delivery, dropped);
    }
  }
  void on_lost(const Error& error) override {
    if (MemoryState* memory = memory_.load(std::memory_order_acquire)) {
      if (!quiet_.load()) log_.warn("the GPU server is lost", {{"why", error.message}});
      memory->on_lost();
    }
  }

 private:
  Log log_;
  std::atomic<bool> quiet_{false};
  std::atomic<MemoryState*> memory_{nullptr};
};

Session::Session(const SessionOptions& options)
    : log_("flyt", options.log_level),
      pushes_(std::make_unique<Pushes>(log_)),
      compile_cache_(cuda::compile_cache_options()),
      captures_(*this) {}

Session::~Session() {
  recovery_thread_.reset();
  if (channel_ != nullptr) channel_->shut_down("the client ends the session");
  if (memory_ != nullptr) memory_->host_calls().stop();
  channel_.reset();
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
  const Instant deadline = options.channel.clock->now() + options.connect_timeout;
  auto url = transport::parse_url(options.url);
  if (!url) return std::move(url).error();
  SessionOptions own = options;
  own.code = sending_of(*url);
  own.channel.lanes = lanes_of(*url, options.connect_timeout);
  own.channel.not_missed = Recovery::not_missed();
  own.recoverable = url->recover != transport::RecoverOption::kOff;
  own.replays = url->recover == transport::RecoverOption::kReplay;
  // What is done again must be in the commands themselves.
  own.channel.keeps_unfinished = own.replays;
  if (own.replays) own.channel.lanes = {};
  Terms terms;
  terms.share = url->kind != transport::Kind::kTcp && !url->socket_only &&
                url->delay.count() == 0 && !own.replays && transport::may_have_bells();
  terms.deadline = deadline;
  for (int tries = 1;; ++tries) {
    auto connection = transport::connect(*url, deadline);
    // One was there a moment ago: it may have been replaced.
    while (!connection && tries > 1 && options.channel.clock->now() < deadline) {
      options.channel.clock->sleep_for(kNextPause);
      connection = transport::connect(*url, deadline);
    }
    if (!connection) return std::move(connection).error();
    if (tries == 1) terms.windows = reserve_windows();
    std::unique_ptr<Session> session(new Session(own));
    const Status status = session->start(std::move(connection).value(), terms, own);
    if (!status) {
      if (status.error().code != ErrorCode::kLost || tries == kTriesMax) return status.error();
      options.channel.clock->sleep_for(kPauseFirst * (1 << tries));
      continue;
    }
    if (url->kind == transport::Kind::kShm && !own.replays &&
        !session->channel().welcome().shared_memory) {
      return Error{ErrorCode::kUnsupported,
                   "the server offers no shared memory; unix:// goes without it"};
    }
    return session;
  }
}

Result<std::unique_ptr<Session>> Session::open(std::unique_ptr<transport::Connection> connection,
                                               const SessionOptions& options) {
  const Terms terms{.deadline = options.channel.clock->now() + options.connect_timeout,
                    .windows = reserve_windows()};
  std::unique_ptr<Session> session(new Session(options));
  Status status = session->start(std::move(connection), terms, options);
  if (!status) return std::move(status).error();
  return session;
}

Status Session::start(std::unique_ptr<transport::Connection> connection, const Terms& terms,
                      const SessionOptions& options) {
  auto credential =
      options.credential.empty() ? rpc::own_credential() : Result<std::string>(options.credential);
  if (!credential) return std::move(credential).error();
  wire::ClientHello own = hello(options.recoverable, std::move(credential).value());
  own.windows = terms.windows;
  own.shared_memory = terms.share;
  auto channel =
      rpc::Channel::open(std::move(connection), own, terms.deadline, *pushes_, options.channel);
  if (!channel) return std::move(channel).error();
  channel_ = std::move(channel).value();
  channel_->answer_by(options.channel.clock->now() + kDescriptionPatience);
  auto devices = DeviceCache::fetch(*channel_);
  if (!devices) return std::move(devices).error();
  channel_->answer_by({});
  devices_ = std::move(devices).value();
  contexts_ = std::make_unique<Contexts>(static_cast<std::size_t>(devices_.count()));
  code_ = std::make_unique<CodeState>();
  // A server of before does not know the command.
  if (channel_->welcome().highest_op >= commands::DescribeUpload::kOp) {
    code_->sending = options.code;
    code_->names_code.store(options.code.named);
  }
  memory_ = std::make_unique<MemoryState>(*this, options.fence_patience);
  graphs_ = std::make_unique<Graphs>(*this);
  mirror_ = &memory_->mirror();
  pushes_->set_memory(memory_.get());
  if (memory_->reservable() == nullptr) devices_.deny_virtual_memory();
  if (Recovery::possible(*channel_)) {
    recovery_ = std::make_unique<Recovery>(*this, *pushes_, options, terms.share);
    pushes_->set_quiet(true);
    code_->recovery = recovery_.get();
    recovery_thread_ = std::make_unique<RecoveryThread>(*this);
    recovery_thread_->start();
  }
  log_.debug("session open", {{"server", channel_->welcome().name},
                              {"driver", channel_->welcome().driver},
                              {"devices", devices_.count()}});
  return {};
}

CUresult Session::hear(std::uint64_t sequence) {
  commands::HearPosts::Reply reply;
  rpc::Reply answer;
  if (!exchange(*channel_, context_index(), commands::HearPosts{}, reply, answer)) {
    const CUresult lost = after_loss();
    // What became of the command nobody can tell any more.
    return lost == CUDA_SUCCESS ? CUDA_ERROR_LAUNCH_FAILED : lost;
  }
  if (answer.posted_error() != 0 && answer.posted_error_sequence() == sequence) {
    return static_cast<CUresult>(answer.posted_error());
  }
  return settle(answer);
}

unsigned Session::times_recovered() const { return recovery_ == nullptr ? 0 : recovery_->times(); }

bool Session::recover() { return recovery_ != nullptr && recovery_->run(); }

CUresult Session::after_loss() {
  if (const CUresult lost = health(); lost != CUDA_SUCCESS) return lost;
  const ContextState* context = thread_state().current_state;
  if (context == nullptr) return CUDA_SUCCESS;
  return static_cast<CUresult>(context->home->sticky.load(std::memory_order_relaxed));
}

CUresult Session::settle(const rpc::Reply& answer) {
  const auto result = static_cast<CUresult>(answer.result());
  if (result != CUDA_ERROR_NOT_READY) memory_->watches().note_revelation();
  // A device error needs no keeping: its own context tells it with every wait, and others never do.
  const auto posted = static_cast<CUresult>(answer.posted_error());
  if (posted != CUDA_SUCCESS && !cuda::is_sticky(posted)) {
    int none = 0;
    posted_error_.compare_exchange_strong(none, static_cast<int>(posted));
  }
  ContextState* context = thread_state().current_state;
  if (context != nullptr && cuda::is_sticky(result)) {
    int none = 0;
    context->home->sticky.compare_exchange_strong(none, static_cast<int>(result));
  }
  return result;
}

std::uint32_t Session::context_index() {
  const ThreadState& thread = thread_state();
  if (thread.current_state == nullptr ||
      thread.current_state->live.load(std::memory_order_relaxed) != thread.current) {
    return 0;
  }
  return thread.current_state->index;
}

}  // namespace flyt::client
