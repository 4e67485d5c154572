// What the server's parent does about its keeper, and about what a server before it has left.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "server/parent/fd_line.h"
#include "server/parent/process_state.h"
#include "server/parent/supervisor.h"

namespace flyt::server {
namespace {

constexpr const char* kKeeperName = "flyt-keeper";
// A parent before this one may be about to end.
constexpr Duration kFindTime = std::chrono::seconds(5);
constexpr Duration kFindPause = std::chrono::milliseconds(20);
// Sessions that are told of their end, and end by themselves.
constexpr Duration kTellTime = std::chrono::milliseconds(300);
constexpr Duration kTellLook = std::chrono::milliseconds(2);
// Between two times in which nobody begins a session.
constexpr Duration kBeginTime = std::chrono::seconds(1);

Error no_keeper(const Error& why) {
  return {why.code, "the keeper of sessions that go on cannot be started: " + why.message};
}

}  // namespace

Status Supervisor::start_board() {
  if (Status status = find_keeper(); !status) return status;
  if (options_.session.board != nullptr) return {};
  // One for each process that has_place() lets be.
  auto board =
      UsageBoard::create(2 * options_.sessions_max + options_.monitors_max() + options_.warm);
  if (!board) return std::move(board).error();
  options_.session.board = std::move(board).value();
  return {};
}

Status Supervisor::find_keeper() {
  if (options_.keeper.empty() || options_.recover_seconds == 0) return {};
  const Instant last = system_clock().now() + kFindTime;
  auto line = KeeperLine::find(options_.keeper);
  while (!line && line.error().code == ErrorCode::kDenied && system_clock().now() < last) {
    system_clock().sleep_for(kFindPause);
    line = KeeperLine::find(options_.keeper);
  }
  if (!line && line.error().code == ErrorCode::kDenied) return std::move(line).error();
  if (!line && line.error().code == ErrorCode::kUnsupported) {
    log_.warn("sessions of the server before are lost", {{"why", line.error().message}});
  }
  if (!line) return {};
  auto board = UsageBoard::adopt(line->take_board());
  if (!board) {
    log_.warn("sessions of the server before are lost", {{"why", board.error().message}});
    line->quit();
    return {};
  }
  options_.session.board = std::move(board).value();
  for (const UsageBoard::Left& left : options_.session.board->left()) {
    held_.push_back({left.slot, static_cast<pid_t>(left.process)});
  }
  keeper_line_ = std::move(*line);
  keeper_door_ = keeper_line_->take_door();
  keeper_started_ = system_clock().now();
  log_.info("what a server before has left is taken over", {{"sessions", held_.size()}});
  return {};
}

// Without one, sessions would end with their processes.
Status Supervisor::start_keeper() {
  if (options_.recover_seconds == 0) return {};
  options_.session.recover_seconds = options_.recover_seconds;
  if (!options_.keeper.empty()) options_.session.returns_ms = options_.recover_seconds * 1000;
  if (!keeper_door_.valid()) {
    Fd home;
    if (!options_.keeper.empty()) {
      auto listening = listen_line(options_.keeper);
      if (!listening) return no_keeper(listening.error());
      home = std::move(*listening);
    }
    auto door = make_door();
    const pid_t pid = door ? fork_named(kKeeperName) : -1;
    if (pid < 0) return no_keeper(system_error("fork", errno));
    if (pid == 0) run_keeper_child(std::move(*door), home);
    children_.emplace(pid, Child{ChildKind::kKeeper, {}});
    keeper_process_ = pid;
    keeper_started_ = system_clock().now();
    keeper_door_ = std::move(door->outside);
    if (home.valid()) {
      home.close();
      auto line = KeeperLine::find(options_.keeper);
      if (!line) {
        ::kill(pid, SIGKILL);
        return no_keeper(line.error());
      }
      keeper_line_ = std::move(*line);
    }
  }
  options_.session.keeper_door = keeper_door_.get();
  keeper_.emplace(keeper_door_.get(), 0, UsageBoard::kNoSlot);
  // Before there is a session that might stand in its way.
  if (const Status reached = keeper_->reach(); !reached) {
    log_.warn("the keeper cannot be asked", {{"why", reached.error().message}});
  }
  return {};
}

void Supervisor::run_keeper_child(Door door, const Fd& home) {
  exchange_door_.close();
  become_child(UsageBoard::kNoSlot);
  options_.session.admission.reset();
  const std::shared_ptr<UsageBoard> board = options_.session.board;
  KeeperOptions keeper{
      .sessions = options_.sessions_max + options_.warm,
      .keeps = std::chrono::seconds(options_.recover_seconds),
      .on_keep = [board](std::uint64_t place) { board->hold(place); },
      .on_free = [board](std::uint64_t place) { board->let_go(place); },
      .may_return = [board](std::uint64_t place) { return board->may_return(place); }};
  if (home.valid()) {
    keeper.home = home.get();
    keeper.outside = door.outside.get();
    keeper.board = board->file().get();
    // It outlives the parent, whatever that dies of, and who waits for the parent's word hears
    // when that is gone.
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, 0);
    if (options_.ready_fd >= 0) ::close(options_.ready_fd);
  } else {
    door.outside.close();
  }
  run_keeper(std::move(door.inside), keeper);
  ::_exit(EXIT_SUCCESS);
}

// What it kept went with it. Those that are there cannot go on elsewhere any more: their places are
// free when their processes have ended.
void Supervisor::keeper_ended() {
  keeper_line_.reset();
  keeper_.reset();
  if (!keeper_door_.valid()) return;
  keeper_door_.close();
  options_.session.keeper_door = -1;
  keeper_process_ = 0;
  for (const auto& [pid, child] : children_) options_.session.board->let_go(child.slot);
  for (const Held& held : held_) options_.session.board->let_go(held.slot);
  const bool again = starts_again(keeper_started_);
  log_.error("the keeper has ended",
             {{"follows", "sessions that are there are lost when their processes are killed"},
              {"started_again", again}});
  if (!again) return;
  if (Status status = start_keeper(); !status) {
    log_.error("no keeper", {{"why", status.error().message}});
    keeper_door_.close();
    options_.session.keeper_door = -1;
    return;
  }
  end_warm();
}

void Supervisor::free_held() {
  std::erase_if(held_, [this](const Held& held) {
    const bool kept = keeper_door_.valid() && options_.session.board->held(held.slot);
    if (kept || (held.process != 0 && !has_ended(held.process))) return false;
    options_.session.board->release(held.slot);
    return true;
  });
}

bool Supervisor::has_room(bool monitor) const {
  return options_.session.board->has_room() || (!monitor && warm_children() != 0);
}

void Supervisor::make_room() {
  UsageBoard& board = *options_.session.board;
  const auto may_return = [&board](const Held& held) { return board.may_return(held.slot); };
  if (!keeper_ || !std::all_of(held_.begin(), held_.end(), may_return) || held_.empty()) return;
  board.forbid_return(held_.front().slot);
  sessions_.warn("a session that may go on is given up",
                 {{"why", "it has the place of a newcomer"}});
  // So that it looks.
  static_cast<void>(keeper_->knows({}, 0).ok());
}

void Supervisor::begin_handover() {
  if (stopping_ || handover_until_) return;
  if (!keeper_line_) {
    return log_.warn("the server stays", {{"why", "it has no --keeper, or that has ended"}});
  }
  handover_until_ = system_clock().now() + std::chrono::seconds(options_.handover_seconds);
  options_.session.board->set_handover(true);
  log_.info("the server is to be replaced");
}

void Supervisor::try_handover() {
  const bool soon = system_clock().now() < *handover_until_;
  if (!stopping_ && keeper_line_ && soon && !take_sessions()) return;
  handover_until_.reset();
  if (handed_over_) return;
  options_.session.board->set_handover(false);
  log_.warn("the server stays", {{"why", "programs have work under way, or cannot go on"}});
}

// All or none: who is taken alone would wait for the others.
bool Supervisor::take_sessions() {
  // Who is about to say hello would be lost. Who says nothing shall not be in the way for ever.
  const Duration half = std::chrono::seconds(options_.handover_seconds) / 2;
  if (lobby_.size() != 0 && system_clock().now() + half < *handover_until_) return false;
  UsageBoard& board = *options_.session.board;
  std::vector<std::size_t> taken;
  for (const auto& [pid, child] : children_) {
    if (child.kind != ChildKind::kSession) continue;
    if (!board.ready(child.slot) || !board.take(child.slot)) {
      for (const std::size_t slot : taken) board.give_back(slot);
      return false;
    }
    taken.push_back(child.slot);
  }
  for (const auto& [pid, child] : children_) {
    if (child.kind == ChildKind::kSession) ::kill(pid, SIGKILL);
  }
  handed_over_ = true;
  return true;
}

// Nobody can go on yet with a session that begins, and where programs come and go there is always
// one that does. Nobody waits for longer than for a place.
bool Supervisor::nobody_begins() const {
  if (!handover_until_) return false;
  const Duration half = Duration(std::chrono::seconds(options_.handover_seconds)) / 2;
  const Duration since = half - (*handover_until_ - system_clock().now());
  return since >= Duration{0} && since % (kLeavingMax + kBeginTime) < kLeavingMax;
}

// Whoever waits finds the next server by himself.
void Supervisor::leave() {
  std::erase_if(children_,
                [](const auto& child) { return child.second.kind == ChildKind::kKeeper; });
  end_children(SIGKILL);
  tell_all_left_out();
  log_.info("the next server may take over");
}

void Supervisor::end_sessions() {
  if (!options_.session.movable || options_.session.returns_ms == 0) return;
  UsageBoard& board = *options_.session.board;
  for (const auto& [pid, child] : children_) board.forbid_return(child.slot);
  board.rouse();
  const Instant last = system_clock().now() + kTellTime;
  while (count_sessions() != 0 && system_clock().now() < last) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid > 0) {
      if (room_ != nullptr) room_->note_end(static_cast<std::uint32_t>(pid), false);
      children_.erase(pid);
    } else {
      system_clock().sleep_for(kTellLook);
    }
  }
}

}  // namespace flyt::server
