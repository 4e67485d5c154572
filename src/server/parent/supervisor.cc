#include "server/parent/supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/haste.h"
#include "base/listening.h"
#include "base/wall_clock.h"
#include "server/admin/controller_process.h"
#include "server/exchange.h"
#include "server/lease/gpu_room.h"
#include "server/nvml/monitor_process.h"
#include "server/parent/handoff.h"
#include "server/parent/survey.h"
#include "server/recovery/keeper.h"
#include "server/transfers/pinned_memory.h"
#include "wire/hello.h"

namespace flyt::server {
namespace {

constexpr const char* kExchangeName = "flyt-exchange";
// How often it is looked whether the keeper has let go of what ended sessions had.
constexpr int kHeldLookMs = 20;
// The same of sessions, while the server is to be replaced.
constexpr int kHandoverLookMs = 1;
// Who controls the server has a process each.
constexpr std::ptrdiff_t kControlsMax = 16;
constexpr Duration kEndGrace = std::chrono::milliseconds(500);
constexpr Duration kEndLook = std::chrono::milliseconds(2);
constexpr Duration kHelperTime = std::chrono::seconds(1);
// SIGTERM may come to the parent itself and to its whole group, from timeout(1) for example.
constexpr Duration kSameStop = std::chrono::seconds(1);
// Those by which somebody says what is to become of the whole server.
constexpr std::array kParentsSignals = {SIGTERM, SIGINT, SIGUSR1};

sigset_t handled_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  for (const int signal : kParentsSignals) ::sigaddset(&set, signal);
  return set;
}

// Rounded up; 0 when it has passed.
std::int64_t ms_until(Instant when) {
  const Duration left = when - system_clock().now();
  return std::max<std::int64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1, 0);
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)), log_("server", options_.session.log_level), own_(::getpid()) {}

Supervisor::~Supervisor() = default;

// In a process of its own, because this one stays free of CUDA.
Status Supervisor::check_driver() {
  auto pair = make_pipe();
  if (!pair) return std::move(pair).error();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork", errno);
  if (pid == 0) {
    pair->reading.close();
    const auto ready = prepare_driver(options_.session);
    const auto fleet = ready ? survey(*ready, options_.session.lease) : ready.error();
    write_all(pair->writing.get(),
              fleet ? "+" + nvml::encode(*fleet) : "-" + fleet.error().message);
    ::_exit(EXIT_SUCCESS);
  }
  pair->writing.close();
  const std::string answer = read_all(pair->reading.get());
  ::waitpid(pid, nullptr, 0);
  if (answer.empty()) return Error{ErrorCode::kUnsupported, "the driver crashed when started"};
  if (answer[0] == '-') return Error{ErrorCode::kUnsupported, answer.substr(1)};
  auto fleet = nvml::decode_fleet(std::string_view(answer).substr(1));
  if (!fleet) return std::move(fleet).error();
  log_.info("driver", {{"kind", fleet->driver_kind},
                       {"device", fleet->gpus.empty() ? "" : fleet->gpus.front().name},
                       {"devices", fleet->gpus.size()}});
  show_only(*fleet);
  options_.session.fleet = std::make_shared<const nvml::Fleet>(std::move(fleet).value());
  return {};
}

// So that nobody takes it for a session's process.
pid_t Supervisor::fork_named(const char* name) {
  std::array<char, 16> own{};
  ::prctl(PR_GET_NAME, own.data());
  ::prctl(PR_SET_NAME, name);
  const pid_t pid = ::fork();
  if (pid != 0) ::prctl(PR_SET_NAME, own.data());
  return pid;
}

// Without one, sessions cannot share anything; all else works.
void Supervisor::start_exchange() {
  auto door = make_door();
  const pid_t pid = door ? fork_named(kExchangeName) : -1;
  if (pid < 0) return log_.error("no exchange", {{"why", system_error("fork", errno).message}});
  if (pid == 0) {
    door->outside.close();
    become_child(UsageBoard::kNoSlot);
    options_.session.admission.reset();
    keeper_door_.close();
    run_exchange(std::move(door->inside));
    ::_exit(EXIT_SUCCESS);
  }
  children_.emplace(pid, Child{ChildKind::kExchange, {}});
  exchange_started_ = system_clock().now();
  exchange_door_ = std::move(door->outside);
  options_.session.exchange_door = exchange_door_.get();
}

void Supervisor::exchange_ended() {
  exchange_door_.close();
  options_.session.exchange_door = -1;
  const bool again = starts_again(exchange_started_);
  log_.error("the exchange has ended",
             {{"follows", "sessions that are there share nothing more"}, {"started_again", again}});
  if (!again) return;
  start_exchange();
  end_warm();
}

// One that ends as soon as it has begun would do so for ever.
bool Supervisor::starts_again(Instant started) const {
  return !stopping_ && !handed_over_ && system_clock().now() - started > kHelperTime;
}

Status Supervisor::start_listening() {
  for (const std::string& text : options_.urls) {
    const auto url = transport::parse_listening_url(text);
    if (!url) return url.error();
    auto listener = transport::listen(*url);
    if (!listener) return with_listening_advice(std::move(listener).error(), "--listen");
    if (Status open = open_to_all((*listener)->url()); !open) return open;
    log_.info("listening", {{"url", transport::to_string((*listener)->url())}});
    if (options_.session.lease.token_key.empty() && transport::reaches_others(*url)) {
      log_.warn("whoever reaches this address can use the GPU",
                {{"url", transport::to_string((*listener)->url())}, {"remedy", "--token-key"}});
    }
    listeners_.push_back(std::move(listener).value());
  }
  return {};
}

// Where a token lets in, the user does not matter: whoever may enter the socket's folder may knock.
Status Supervisor::open_to_all(const transport::Url& url) const {
  const bool file = !url.path.empty() && !url.path.starts_with('@');
  if (options_.session.lease.token_key.empty() || !file) return {};
  if (::chmod(url.path.c_str(), 0666) == 0) return {};
  return system_error("cannot set the mode of " + url.path, errno);
}

Status Supervisor::start_admission() {
  const LeaseOptions& lease = options_.session.lease;
  if (lease.token_key.empty()) return {};
  if (lease.id.empty()) {
    return Error{ErrorCode::kInvalid, "--token-key needs --lease: tokens are of a lease"};
  }
  auto key = Admission::read_key(lease.token_key);
  if (!key) return key.error();
  auto admission = Admission::create(lease.id, *key, lease.token_book);
  ::explicit_bzero(key->data(), key->size());
  if (!admission) return std::move(admission).error();
  options_.session.admission = std::move(admission).value();
  return {};
}

// Only this user and root may connect.
Status Supervisor::start_control() {
  if (options_.control.empty()) return {};
  const auto url = transport::parse_listening_url(options_.control);
  if (!url) return url.error();
  // Nobody who controls shares memory.
  if (url->kind != transport::Kind::kUnix || url->socket_only) {
    return Error{ErrorCode::kInvalid, "--control takes unix:///PATH, not " + options_.control};
  }
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return system_error("eventfd", errno);
  auto listener = transport::listen(*url);
  if (!listener) return with_listening_advice(std::move(listener).error(), "--control");
  control_ = std::move(listener).value();
  options_.session.movable = true;
  log_.info("controlled", {{"url", transport::to_string(control_->url())}});
  return {};
}

Status Supervisor::run() {
  const sigset_t set = handled_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(kHasteSignal, [](int) {});
  signals_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return system_error("signalfd", errno);
  if (!options_.session.fault_board.empty()) {
    auto board = FaultBoard::open(options_.session.fault_board);
    if (!board) return std::move(board).error();
    faults_ = std::move(*board);
  }
  if (!options_.session.gpu_room.empty()) {
    auto room = Room::open(options_.session.gpu_room);
    if (!room) return std::move(room).error();
    room_ = std::move(*room);
  }
  if (Status status = check_driver(); !status) return status;
  if (Status status = start_board(); !status) return status;
  if (Status status = start_admission(); !status) return status;
  if (Status usable = CodeStore::check(options_.session.code_store); !usable) {
    log_.warn("code will not be kept",
              {{"why", usable.error().message}, {"remedy", "another folder for --module-cache"}});
  }
  const LeaseOptions& lease = options_.session.lease;
  const auto grant = grant_sms(options_.session.fleet->sms, lease.sms, lease.sm_groups);
  if (!grant) return grant.error();
  options_.session.board->set_grant(*grant);
  if (lease.memory_bytes != 0) {
    options_.session.board->set_quota(lease.memory_bytes, UsageBoard::Shrink::kRefuse);
  }
  if (!lease.id.empty()) {
    log_.info("lease",
              {{"lease", lease.id}, {"memory", lease.memory_bytes}, {"sms", grant->granted}});
  }
  start_exchange();
  if (Status status = start_keeper(); !status) return status;
  if (Status status = start_control(); !status) return status;
  if (Status status = start_listening(); !status) return status;
  keep_warm();
  if (options_.ready_fd >= 0) write_all(options_.ready_fd, "ready\n");
  while (!finished()) {
    if (Status status = wait_for_events(); !status) return status;
  }
  if (handed_over_) {
    leave();
    return {};
  }
  end_sessions();
  end_children(SIGKILL);
  if (keeper_line_) keeper_line_->quit();
  tell_all_left_out();
  log_.info("stopped");
  return {};
}

void Supervisor::tell_all_left_out() const {
  refusals_.finish();
  options_.session.lines->finish(log_);
}

bool Supervisor::finished() const {
  if (handed_over_) return true;
  if (!stopping_) return false;
  return count_sessions() == 0 || system_clock().now() >= stop_at_;
}

std::size_t Supervisor::count_sessions() const {
  return static_cast<std::size_t>(
      std::count_if(children_.begin(), children_.end(),
                    [](const auto& child) { return child.second.kind == ChildKind::kSession; }));
}

Status Supervisor::wait_for_events() {
  std::vector<pollfd> wanted = {{signals_.get(), POLLIN, 0}};
  const bool rest = no_connections_.resting(system_clock().now());
  const auto polled = [rest](const auto& listener) { return rest ? -1 : listener->fd(); };
  for (const auto& listener : listeners_) wanted.push_back({polled(listener), POLLIN, 0});
  const std::size_t listeners = wanted.size();
  if (control_ != nullptr) {
    wanted.push_back({polled(control_), POLLIN, 0});
    wanted.push_back({wake_.get(), POLLIN, 0});
  }
  const std::size_t keeper = wanted.size();
  if (keeper_line_) wanted.push_back({keeper_line_->fd(), POLLIN, 0});
  lobby_.add_to(wanted);
  if (::poll(wanted.data(), wanted.size(), timeout_ms()) < 0 && errno != EINTR) {
    return system_error("poll", errno);
  }
  // First: behind a signal of its end the line is another one's.
  if (keeper_line_ && wanted[keeper].revents != 0) keeper_ended();
  if (wanted[0].revents != 0) take_signals();
  // Signals may have ended the listening; then wanted is longer than what is left.
  for (std::size_t i = 0; i < listeners_.size() && i + 1 < listeners; ++i) {
    if (wanted[i + 1].revents != 0) accept_from(*listeners_[i]);
  }
  if (control_ != nullptr && wanted[listeners].revents != 0) accept_control();
  if (control_ != nullptr && wanted[listeners + 1].revents != 0) take_requests();
  free_held();
  refusals_.tell_left_out();
  options_.session.lines->tell_left_out(log_);
  if (lobby_.size() != 0) let_in();
  keep_warm();
  if (handover_until_) try_handover();
  return {};
}

int Supervisor::timeout_ms() const {
  if (handover_until_) return kHandoverLookMs;
  if (stopping_) return static_cast<int>(std::min<std::int64_t>(ms_until(stop_at_), 1000));
  int lobby = lobby_.timeout_ms();
  if (!held_.empty()) lobby = lobby < 0 ? kHeldLookMs : std::min(lobby, kHeldLookMs);
  lobby = no_connections_.limit(lobby, system_clock().now());
  lobby = options_.session.lines->limit(lobby, system_clock().now());
  if (warm_children() >= options_.warm || warm_failures_ >= kWarmFailuresMax) return lobby;
  if (no_processes_.resting(system_clock().now())) {
    return no_processes_.limit(lobby, system_clock().now());
  }
  const auto warm = static_cast<int>(ms_until(warm_at_));
  return lobby < 0 ? warm : std::min(lobby, warm);
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
      continue;
    }
    if (info.ssi_signo == SIGUSR1) {
      begin_handover();
      continue;
    }
    const Instant now = system_clock().now();
    const bool terminates = info.ssi_signo == SIGTERM;
    if (terminates && terminated_ && now - *terminated_ < kSameStop) continue;
    const bool at_once = stopping_ || !terminates;
    if (terminates) terminated_ = now;
    stop(at_once ? Duration{0} : std::chrono::seconds(options_.drain_seconds));
  }
}

void Supervisor::stop(Duration grace) {
  stop_at_ = system_clock().now() + grace;
  stopping_ = true;
  listeners_.clear();
  turn_all_away();
  // Nobody will take them.
  end_warm();
  log_.info("stopping",
            {{"sessions", count_sessions()},
             {"seconds", std::chrono::duration_cast<std::chrono::seconds>(grace).count()}});
}

std::unique_ptr<transport::Connection> Supervisor::accept_one(transport::Listener& listener) {
  const Instant now = system_clock().now();
  auto connection = listener.accept(now, nullptr);
  if (connection) return std::move(*connection);
  if (connection.error().code != ErrorCode::kSystem) return nullptr;
  // Those in the lobby have no process yet; whoever comes now is tried again at once.
  if (auto out = lobby_.give_way()) {
    refusals_.warn("client refused", {{"peer", out->peer()}, {"reason", "no descriptor is free"}});
    refuse_full(*out);
    const Haste haste;
    out.reset();
    return nullptr;
  }
  // They wait at the socket.
  if (no_connections_.met(now)) {
    log_.error("nobody can connect for now", {{"why", connection.error().message}});
  }
  return nullptr;
}

void Supervisor::accept_control() {
  auto connection = accept_one(*control_);
  if (connection == nullptr) return;
  const auto controls = std::count_if(children_.begin(), children_.end(), [](const auto& child) {
    return child.second.kind == ChildKind::kControl;
  });
  if (!admin::may_control(*connection)) {
    refusals_.warn("control refused", {{"peer", connection->peer()}, {"reason", "another user"}});
    return refuse_denied(*connection, "only the server's user and root may control it");
  }
  if (controls >= kControlsMax) return refuse_full(*connection);
  const pid_t pid = ::fork();
  if (pid < 0) return log_.error("fork failed", {{"why", system_error("fork", errno).message}});
  if (pid != 0) {
    children_.emplace(pid, Child{ChildKind::kControl, Fd()});
    connection->abandon();
    return;
  }
  const int wake = wake_.get();
  become_child(UsageBoard::kNoSlot);
  admin::serve_control(std::move(connection), options_.session, options_.sessions_max, wake);
  ::_exit(EXIT_SUCCESS);
}

void Supervisor::take_requests() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  UsageBoard& board = *options_.session.board;
  for (const auto& [pid, child] : children_) {
    if (!board.takes_end_request(child.slot)) continue;
    log_.info("session is ended", {{"pid", pid}, {"reason", "asked for by control"}});
    board.forbid_return(child.slot);
    ::kill(pid, SIGKILL);
  }
  std::uint32_t seconds = 0;
  if (board.takes_drain_request(seconds)) stop(std::chrono::seconds(seconds));
}

void Supervisor::accept_from(transport::Listener& listener) {
  auto connection = accept_one(listener);
  if (connection == nullptr) return;
  auto out = lobby_.enter(std::move(connection), !listener.url().socket_only);
  if (out == nullptr) return;
  refusals_.warn("client refused",
                 {{"peer", out->peer()}, {"reason", "too many who say no hello"}});
  refuse_full(*out);
  const Haste haste;
  out.reset();
}

// A lane belongs to the process of its session.
void Supervisor::give_to_session(transport::Connection& lane, const wire::SessionToken& token) {
  Child* session = nullptr;
  for (auto& [pid, child] : children_) {
    const bool known = same_token(child.token, token) && child.token != wire::SessionToken{};
    if (known && child.kind == ChildKind::kSession && child.channel.valid()) session = &child;
  }
  if (session == nullptr) {
    refusals_.info("client refused", {{"peer", lane.peer()}, {"reason", "a lane of no session"}});
    return refuse_unknown_session(lane);
  }
  const bool room = session->lanes < wire::kLanesMax;
  if (!room || !transport::send_fd(session->channel.get(), lane.fd(), {})) {
    refusals_.warn("client refused", {{"peer", lane.peer()}, {"reason", "too many lanes"}});
    return refuse_full(lane);
  }
  ++session->lanes;
  let_go(lane);
}

void Supervisor::let_go(transport::Connection& connection) {
  const Haste haste;
  connection.abandon();
}

// A monitor has no use for what makes a process warm.
void Supervisor::give_to_child(Lobby::Guest& guest, bool monitor) {
  if (!monitor && give_to_warm_child(guest)) {
    // The child has the socket; this process's copy must go without ending the connection.
    let_go(*guest.connection);
  } else {
    fork_session(guest, monitor);
  }
}

void Supervisor::become_child(std::size_t slot) {
  options_.session.slot = slot;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have been killed before that.
  if (::getppid() != own_) ::_exit(EXIT_FAILURE);
  keeper_line_.reset();
  keeper_.reset();
  // What stops the parent comes to all its processes from a terminal and from whoever ends a
  // service. What is to become of them the parent says, which may have sessions go on for a while.
  for (const int signal : kParentsSignals) ::signal(signal, SIG_IGN);
  const sigset_t set = handled_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  // The parent's sockets must end with the parent.
  for (auto& listener : listeners_) close_in_child(*listener);
  if (control_ != nullptr) close_in_child(*control_);
  {
    const Haste haste;
    lobby_.abandon();
    leaving_.abandon();
  }
  for (auto& [pid, child] : children_) {
    child.channel.close();
    // With it a process could speak for that child's client.
    ::explicit_bzero(child.token.data(), child.token.size());
  }
  signals_.close();
}

void Supervisor::fork_session(Lobby::Guest& guest, bool monitor) {
  const std::size_t slot = options_.session.board->claim();
  // A process that was warm has ended meanwhile. Without a place nothing would be counted.
  if (slot == UsageBoard::kNoSlot) {
    refusals_.warn("client refused", {{"peer", guest.connection->peer()},
                                      {"reason", "sessions that may go on have all places"}});
    give_back(guest.charged);
    return refuse_full(*guest.connection);
  }
  Ends lanes;
  if (may_have_lanes(*guest.connection)) {
    // Without it the session has one connection, as any had before there were lanes.
    if (auto pair = make_socket_pair()) lanes = std::move(*pair);
  }
  const wire::SessionToken token = lanes.writing.valid() ? make_token() : wire::SessionToken{};
  const pid_t pid = ::fork();
  if (pid < 0) {
    refusals_.warn("client refused", {{"peer", guest.connection->peer()},
                                      {"reason", system_error("fork", errno).message}});
    options_.session.board->release(slot);
    give_back(guest.charged);
    return refuse_full(*guest.connection);
  }
  if (pid != 0) {
    if (lanes.writing.valid()) make_impatient(lanes.writing);
    Child child{ChildKind::kSession, std::move(lanes.writing), slot, token};
    child.monitor = monitor;
    child.goes_on = guest.goes_on;
    child.charged = guest.charged;
    children_.emplace(pid, std::move(child));
    let_go(*guest.connection);
    return;
  }
  lanes.writing.close();
  auto own = std::move(guest.connection);
  become_child(slot);
  options_.session.admission.reset();
  options_.session.token = token;
  options_.session.lane_door = lanes.reading.release();
  serve(std::move(own), guest.share, nullptr);
}

// Hears the client before anything is done for it: only a session needs a driver.
void Supervisor::serve(std::unique_ptr<transport::Connection> connection, bool share,
                       const Warm* warm) {
  const auto hello = hear_client(*connection, options_.session);
  if (!hello) ::_exit(EXIT_SUCCESS);
  if (hello->role == wire::ConnectionRole::kBulk) {
    refuse_unknown_session(*connection);
    ::_exit(EXIT_SUCCESS);
  }
  if (hello->role == wire::ConnectionRole::kAdmin) {
    constexpr std::string_view kReason = "a server is controlled over its control socket";
    refusals_.warn("client refused", {{"peer", connection->peer()}, {"reason", kReason}});
    refuse_denied(*connection, kReason);
    ::_exit(EXIT_SUCCESS);
  }
  if (hello->role == wire::ConnectionRole::kMonitor) {
    nvml::serve_monitor(std::move(connection), *hello, options_.session);
    ::_exit(EXIT_SUCCESS);
  }
  take_usage_slot(options_.session.board->slot(options_.session.slot));
  if (warm != nullptr) {
    if (warm->driver.room) warm->driver.room->serve(room_name(hello->recovers));
    serve_session(std::move(connection), *hello, share, warm->driver, warm->buffers,
                  options_.session);
    ::_exit(EXIT_SUCCESS);
  }
  const auto ready = prepare_session(options_.session, hello->recovers);
  if (!ready && ready.error().code == ErrorCode::kLimit) {
    refusals_.warn("client refused",
                   {{"peer", connection->peer()}, {"reason", ready.error().message}});
    refuse_gpu_full(*connection, ready.error().message);
    ::_exit(EXIT_SUCCESS);
  }
  if (!ready) {
    refuse_without_driver(*connection, ready.error().message);
    sessions_.error("no driver", {{"why", ready.error().message}});
    ::_exit(EXIT_FAILURE);
  }
  HostBuffers buffers(ready->driver.table);
  serve_session(std::move(connection), *hello, share, *ready, buffers, options_.session);
  ::_exit(EXIT_SUCCESS);
}

void Supervisor::reap() {
  int status = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) break;
    const auto found = children_.find(pid);
    if (found == children_.end()) continue;
    if (WIFSIGNALED(status) && !found->second.ended) {
      sessions_.warn("session ended",
                     {{"pid", pid}, {"signal", WTERMSIG(status)}, {"reason", "killed"}});
    }
    const bool warm = found->second.kind == ChildKind::kWarm;
    if (warm && !found->second.ended) warm_ended(status);
    if (pid == keeper_process_) keeper_ended();
    if (found->second.kind == ChildKind::kExchange) exchange_ended();
    if (!options_.session.board->begun(found->second.slot)) give_back(found->second.charged);
    const bool held = keeper_door_.valid() && options_.session.board->held(found->second.slot);
    if (room_ != nullptr) room_->note_end(static_cast<std::uint32_t>(pid), held);
    if (held) {
      options_.session.board->orphan(found->second.slot);
      held_.push_back({found->second.slot, 0});
    } else {
      options_.session.board->release(found->second.slot);
    }
    children_.erase(found);
  }
  keep_warm();
}

void Supervisor::end_children(int signal) {
  for (const auto& [pid, child] : children_) ::kill(pid, signal);
  const Instant last = system_clock().now() + kEndGrace;
  // One that a driver holds in the kernel is left behind.
  while (!children_.empty() && system_clock().now() < last) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid < 0) break;
    if (pid == 0) {
      system_clock().sleep_for(kEndLook);
    } else {
      if (room_ != nullptr) room_->note_end(static_cast<std::uint32_t>(pid), handed_over_);
      children_.erase(pid);
    }
  }
}

}  // namespace flyt::server
