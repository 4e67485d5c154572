#include "client/provision.h"

#include "client/settings.h"
#include "rpc/credential.h"
#include "rpc/desk.h"

namespace flyt::client {
namespace {

// A node takes less to start a server.
constexpr Duration kQuiet = std::chrono::seconds(1);
// Two in a row that were taken away are bad luck; more are a fault.
constexpr unsigned kAskedMost = 4;
constexpr Duration kAskPause = std::chrono::milliseconds(50);

Result<Provision> of_environment(std::string_view url) {
  auto credential = rpc::own_credential();
  if (!credential) return std::move(credential).error();
  return Provision{std::string(url), std::move(credential).value(), nullptr, {}, 0};
}

Result<Provision> of_desk(const std::string& socket, wire::DeskPurpose purpose, Duration patience,
                          const Log& log) {
  const Instant until = system_clock().now() + patience;
  const auto on_waiting = [&log](const wire::DeskWaiting& waiting) {
    log.warn("waiting for a GPU", {{"ahead", waiting.ahead}, {"why", waiting.why}});
  };
  auto visit = rpc::visit_desk(socket, purpose, {patience, kQuiet}, on_waiting);
  if (!visit) return std::move(visit).error();
  return Provision{std::move(visit->granted.url), std::move(visit->granted.token),
                   std::move(visit->connection), until, 1};
}

// Whether the same might be answered otherwise by another server.
bool may_have_moved(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNotFound:
    case ErrorCode::kDenied:
    case ErrorCode::kLost:
    case ErrorCode::kTimeout:
    case ErrorCode::kSystem:
      return true;
    case ErrorCode::kInvalid:
    case ErrorCode::kUnsupported:
    // It is the right one, whose GPU is full, and has waited for room itself.
    case ErrorCode::kLimit:
      return false;
  }
  return false;
}

}  // namespace

Result<Provision> find_provision(const Log& log) {
  const std::string socket = rpc::desk_socket();
  const std::string_view url = environment("FLYT_SERVER");
  if (url.empty() && !rpc::has_desk(socket)) {
    log.warn(
        "no GPU server: set FLYT_SERVER to unix:///PATH or tcp://HOST:PORT, or start the"
        " program with `flyt run --server URL -- PROGRAM`");
    return Error{ErrorCode::kNotFound, "no GPU server"};
  }
  auto found = url.empty() ? of_desk(socket, wire::DeskPurpose::kUse, wait_patience(), log)
                           : of_environment(url);
  if (!found) {
    log.warn("no GPU", {{"asked", url.empty() ? std::string_view(socket) : url},
                        {"why", found.error().message}});
  }
  return found;
}

bool find_anew(Provision& provision, const Error& why, const Log& log) {
  const bool over = system_clock().now() + kAskPause >= provision.ask_until;
  if (provision.desk == nullptr || provision.asked >= kAskedMost || over ||
      !may_have_moved(why.code)) {
    return false;
  }
  log.info("the GPU that was granted is not there; asking again", {{"why", why.message}});
  system_clock().sleep_for(kAskPause * provision.asked);
  const std::string socket = rpc::desk_socket();
  const auto rest = [&] { return provision.ask_until - system_clock().now(); };
  auto found = of_desk(socket, wire::DeskPurpose::kAgain, rest(), log);
  // An earlier client manager does not understand that, and hangs up.
  if (!found && found.error().code == ErrorCode::kLost) {
    found = of_desk(socket, wire::DeskPurpose::kUse, rest(), log);
  }
  if (!found) {
    log.warn("no other GPU", {{"asked", socket}, {"why", found.error().message}});
    return false;
  }
  found->asked = provision.asked + 1;
  // Only now is the first one given up: the machine's GPU is in use all the time.
  provision = std::move(*found);
  return true;
}

}  // namespace flyt::client
