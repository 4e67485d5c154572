// Whom the server's parent lets in. It judges what a client shows before a process is spent on it,
// and least of all one with a driver: anybody may say anything as often as it likes.
#include <algorithm>

#include "base/haste.h"
#include "base/wall_clock.h"
#include "server/lease/gpu_room.h"
#include "server/parent/handoff.h"
#include "server/parent/process_state.h"
#include "server/parent/supervisor.h"
#include "server/recovery/recovery.h"
#include "wire/hello.h"

namespace flyt::server {
namespace {

// How long who returns waits for the end of the process that it had; it waits for 10 s in all.
constexpr Duration kEndingMax = std::chrono::seconds(5);

}  // namespace

// Who says that he returns takes the room of the process that he had, which may not have ended yet:
// under MPS that takes the driver a while. Whether it is true the keeper knows; until he is asked,
// as many again.
bool Supervisor::has_place(const wire::ClientHello& hello) const {
  const bool monitor = hello.role != wire::ConnectionRole::kCommands;
  const bool returns = !monitor && hello.recovers != wire::SessionToken{};
  const std::size_t most = monitor ? options_.monitors_max() : options_.sessions_max;
  const auto processes = std::count_if(children_.begin(), children_.end(), [&](const auto& child) {
    return child.second.kind == ChildKind::kSession && child.second.monitor == monitor;
  });
  return static_cast<std::size_t>(processes) < (returns ? 2 * most : most);
}

// Programs that run one after the other have a place each time: whether the client of a process is
// gone that process may not know yet, least of all while its driver starts.
bool Supervisor::hold(Lobby::Guest& guest, Duration at_most, std::string_view what) {
  const Instant now = system_clock().now();
  if (!guest.held_until) {
    guest.held_until = now + at_most;
    refusals_.info(what, {{"peer", guest.connection->peer()}});
  }
  return now < *guest.held_until && lobby_.hold(guest);
}

void Supervisor::hold_return(Lobby::Guest& guest) {
  std::string_view reason = "another connection waits to go on with the session";
  if (!lobby_.holds(guest.goes_on)) {
    if (hold(guest, kEndingMax, "client waits for the process that it had")) return;
    reason = "the session's process is still there";
  }
  refusals_.info("client refused", {{"peer", guest.connection->peer()}, {"reason", reason}});
  refuse_to_go_on(*guest.connection, reason);
}

// Whoever has said hello gets a process, if there is room.
void Supervisor::let_in() {
  leaving_ = lobby_.leave();
  for (const auto& late : leaving_.late) {
    refusals_.info("client refused", {{"peer", late->peer()}, {"reason", kNoHello}});
    refuse_late(*late);
  }
  for (Lobby::Guest& guest : leaving_.ready) {
    const auto hello = peek_hello(*guest.connection);
    if (!hello) {
      const Error& why = hello.error();
      refusals_.info("client refused",
                     {{"peer", guest.connection->peer()}, {"reason", why.message}});
      refuse_bad_hello(*guest.connection, why);
      continue;
    }
    if (hello->role == wire::ConnectionRole::kBulk) {
      give_to_session(*guest.connection, hello->token);
      continue;
    }
    const bool monitor = hello->role != wire::ConnectionRole::kCommands;
    guest.goes_on = monitor ? 0 : room_name(hello->recovers);
    if (!monitor && guest.goes_on == 0 && nobody_begins()) {
      if (!guest.held_until && admit(guest, *hello, true) == Verdict::kOut) continue;
      if (hold(guest, kLeavingMax, "client waits while the server is replaced")) continue;
    }
    const bool place = has_place(*hello);
    if (!place || !has_room(monitor)) {
      // Who would not be let in takes nobody's room to wait in.
      if (!guest.held_until && admit(guest, *hello, true) == Verdict::kOut) continue;
      if (place) make_room();
      if (hold(guest, kLeavingMax, "client waits for a place")) continue;
      refusals_.warn("client refused",
                     {{"peer", guest.connection->peer()},
                      {"reason", "too many sessions; --max-sessions allows more"}});
      refuse_full(*guest.connection);
      continue;
    }
    const Verdict verdict = admit(guest, *hello, false);
    if (verdict == Verdict::kReturns) hold_return(guest);
    if (verdict == Verdict::kIn) give_to_child(guest, monitor);
  }
  // A stranger may have sent descriptors, which go with the connection.
  const Haste haste;
  leaving_ = {};
}

void Supervisor::turn_all_away() {
  leaving_ = lobby_.leave();
  for (Lobby::Guest& guest : leaving_.ready) {
    refusals_.info("client refused", {{"peer", guest.connection->peer()}, {"reason", kAtTheEnd}});
    refuse_at_the_end(*guest.connection);
  }
  const Haste haste;
  leaving_ = {};
  lobby_.abandon();
}

Supervisor::Verdict Supervisor::admit(Lobby::Guest& guest, const wire::ClientHello& hello,
                                      bool waits) {
  // It is told so by the process that hears it.
  if (hello.role == wire::ConnectionRole::kAdmin) return Verdict::kIn;
  transport::Connection& connection = *guest.connection;
  const std::string peer = transport::identity_of_peer(connection.fd());
  // A session that goes on shows its own token, and the keeper knows whose that is: a credential
  // may have run out since it began. Of a monitor nobody would ask the keeper.
  if (guest.goes_on != 0) {
    const auto verdict = judge_return(guest, hello.recovers, peer);
    if (verdict) return *verdict;
    const std::string& reason = verdict.error().message;
    refusals_.info("client refused", {{"peer", connection.peer()}, {"reason", reason}});
    refuse_to_go_on(connection, reason);
    return Verdict::kOut;
  }
  Admission* const admission = options_.session.admission.get();
  if (admission == nullptr) return Verdict::kIn;
  using For = Admission::For;
  For what = For::kMonitor;
  if (hello.role != wire::ConnectionRole::kMonitor) what = waits ? For::kWaiting : For::kSession;
  const Status admitted =
      admission->admit(hello.credential, peer, what, unix_seconds(), &guest.charged);
  if (admitted) return Verdict::kIn;
  const std::string& reason = admitted.error().message;
  refusals_.warn("client refused", {{"peer", connection.peer()}, {"reason", reason}});
  refuse_denied(connection, reason);
  return Verdict::kOut;
}

void Supervisor::give_back(const std::optional<wire::TokenNonce>& charged) {
  Admission* const admission = options_.session.admission.get();
  if (charged && admission != nullptr) admission->give_back(*charged);
}

// An error: nobody of that peer can go on with such a session. A process for who cannot go on yet
// would do nothing but wait, in the place of somebody else, as often as he likes to say so.
Result<Supervisor::Verdict> Supervisor::judge_return(const Lobby::Guest& guest,
                                                     const wire::SessionToken& token,
                                                     const std::string& peer) {
  if (!keeper_) return Error{ErrorCode::kInvalid, "this server keeps no sessions"};
  const auto known = keeper_->knows(as_token(token), user_of(peer));
  if (!known) return known.error();
  if (*known == Keeping::Known::kNothing) {
    return Error{ErrorCode::kInvalid, "nothing is kept of such a session"};
  }
  // One may be on its way to take it over.
  const bool begun = std::any_of(children_.begin(), children_.end(), [&guest](const auto& child) {
    return child.second.goes_on == guest.goes_on && !is_ending(child.first);
  });
  return begun || *known == Keeping::Known::kServed ? Verdict::kReturns : Verdict::kIn;
}

}  // namespace flyt::server
