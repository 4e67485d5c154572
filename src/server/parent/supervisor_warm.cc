// What the server's parent does about processes that are kept ready for clients.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "server/faults/fault_worker.h"
#include "server/lease/gpu_room.h"
#include "server/lease/room_worker.h"
#include "server/parent/handoff.h"
#include "server/parent/supervisor.h"
#include "server/transfers/pinned_memory.h"

namespace flyt::server {
namespace {

// What a warm process says when it could take a client.
constexpr std::string_view kReady = "r";
// How long none is made where the GPU had no room for one; doubled each time, up to half a minute.
constexpr Duration kNoRoomPause = std::chrono::seconds(1);
constexpr unsigned kNoRoomDoublings = 5;

bool readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, 0) == 1 && (wanted.revents & POLLIN) != 0;
}

}  // namespace

// One that is ready, or else one that has been starting for a while.
bool Supervisor::give_to_warm_child(const Lobby::Guest& guest) {
  const transport::Connection& connection = *guest.connection;
  ClientNote note{.may_share = guest.share};
  if (may_have_lanes(connection)) note.token = make_token();
  for (const bool ready : {true, false}) {
    for (auto& [pid, child] : children_) {
      if (child.kind != ChildKind::kWarm || !child.channel.valid()) continue;
      // It is about to end.
      if (faults_ != nullptr && child.incident != faults_->incident()) continue;
      if (ready && !readable(child.channel.get())) continue;
      const Status sent = transport::send_fd(child.channel.get(), connection.fd(), encode(note));
      child.token = note.token;
      child.goes_on = guest.goes_on;
      child.charged = guest.charged;
      if (!sent || !may_have_lanes(connection)) child.channel.close();
      child.kind = ChildKind::kSession;
      if (!sent) continue;
      warm_failures_ = 0;
      warm_refusals_ = 0;
      warm_at_ = system_clock().now() + std::chrono::milliseconds(options_.warm_pause_ms);
      return true;
    }
  }
  return false;
}

unsigned Supervisor::warm_children() const {
  return static_cast<unsigned>(
      std::count_if(children_.begin(), children_.end(),
                    [](const auto& child) { return child.second.kind == ChildKind::kWarm; }));
}

void Supervisor::keep_warm() {
  const Instant now = system_clock().now();
  if (stopping_ || warm_failures_ >= kWarmFailuresMax || now < warm_at_) return;
  if (warm_children() >= options_.warm || no_processes_.resting(now)) return;
  if (room_ != nullptr && room_->count().used() >= options_.session.gpu_sessions) {
    warm_at_ = now + kNoRoomPause;
    return;
  }
  for (unsigned count = warm_children(); count < options_.warm; ++count) {
    const Status forked = fork_warm();
    if (forked) continue;
    if (no_processes_.met(now)) {
      log_.error("no warm process for now", {{"why", forked.error().message}});
    }
    return;
  }
}

Status Supervisor::fork_warm() {
  auto pair = make_socket_pair();
  if (!pair) return std::move(pair).error();
  const std::size_t slot = options_.session.board->claim();
  if (slot == UsageBoard::kNoSlot) {
    return Error{ErrorCode::kLimit, "sessions that may go on have all places"};
  }
  const std::uint32_t incident = faults_ == nullptr ? 0 : faults_->incident();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int failed = errno;
    options_.session.board->release(slot);
    return system_error("fork", failed);
  }
  if (pid != 0) {
    make_impatient(pair->writing);
    Child child{ChildKind::kWarm, std::move(pair->writing), slot};
    child.incident = incident;
    children_.emplace(pid, std::move(child));
    return {};
  }
  pair->writing.close();
  become_child(slot);
  options_.session.admission.reset();
  run_warm_child(std::move(pair->reading));
}

void Supervisor::end_warm() {
  for (auto& [pid, child] : children_) {
    if (child.kind != ChildKind::kWarm || child.ended) continue;
    child.ended = true;
    child.channel.close();
    ::kill(pid, SIGKILL);
  }
}

void Supervisor::warm_ended(int status) {
  const int how = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
  if (how == kExitGpuFault) return;
  if (how != kExitNoRoom) {
    ++warm_failures_;
    return;
  }
  warm_at_ = system_clock().now() + kNoRoomPause * (1U << warm_refusals_);
  if (warm_refusals_ < kNoRoomDoublings) ++warm_refusals_;
}

void Supervisor::run_warm_child(Fd channel) {
  auto room = open_room(options_.session);
  if (room != nullptr && !room->enter(Room::Kind::kReady, 0, options_.session.gpu_sessions)) {
    ::_exit(kExitNoRoom);
  }
  auto ready = prepare_driver(options_.session);
  if (!ready) {
    log_.error("no driver", {{"why", ready.error().message}});
    ::_exit(EXIT_FAILURE);
  }
  // It is of no use after a fault. Whoever gets a client has it watch for itself.
  std::optional<FaultWorker> watch;
  if (ready->faults != nullptr) watch.emplace(*ready->faults, [] { ::_exit(kExitGpuFault); });
  HostBuffers buffers(ready->driver.table);
  if (const Status warmed = warm_up(*ready, buffers); !warmed) {
    if (room != nullptr && warmed.error().code == ErrorCode::kLimit) {
      log_.info("the GPU has no room for a process that is ready",
                {{"why", warmed.error().message}});
      ::_exit(kExitNoRoom);
    }
    log_.error("no driver", {{"why", warmed.error().message}});
    ::_exit(EXIT_FAILURE);
  }
  ready->room = std::move(room);
  // A client that is on its way here is served all the same: what was sent before can be read.
  std::atomic<bool> gives_way{false};
  std::optional<RoomWorker> makes_room;
  if (ready->room != nullptr) {
    makes_room.emplace(*ready->room, options_.session.gpu_sessions, [&gives_way, &channel] {
      gives_way.store(true);
      close_to_sender(channel);
    });
  }
  write_all(channel.get(), kReady);
  // The parent's own word: it sends each whole, or ends.
  auto received = transport::receive_fd(channel.get(), transport::kNever);
  watch.reset();
  makes_room.reset();
  if (!received && gives_way.load()) ::_exit(kExitNoRoom);
  if (!received) {
    if (received.error().code != ErrorCode::kLost) {
      log_.error("no client came", {{"why", received.error().message}});
    }
    ::_exit(EXIT_SUCCESS);
  }
  auto connection = transport::adopt(std::move(received->fd));
  if (!connection) ::_exit(EXIT_FAILURE);
  const ClientNote note = decode_client_note(received->text);
  options_.session.token = note.token;
  options_.session.lane_door = channel.release();
  const Warm warm{*ready, buffers};
  serve(std::move(connection).value(), note.may_share, &warm);
}

}  // namespace flyt::server
