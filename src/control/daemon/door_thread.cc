#include "control/daemon/door_thread.h"

#include <fcntl.h>

#include <charconv>
#include <optional>

#include "base/clock.h"
#include "base/listening.h"
#include "base/shortage.h"

namespace flyt::control {
namespace {

// "unix-1000"
std::optional<std::uint32_t> user_of(std::string_view identity) {
  constexpr std::string_view kFront = "unix-";
  std::uint32_t user = 0;
  const char* end = identity.data() + identity.size();
  if (!identity.starts_with(kFront)) return std::nullopt;
  const auto [stop, error] = std::from_chars(identity.data() + kFront.size(), end, user);
  if (error != std::errc() || stop != end) return std::nullopt;
  return user;
}

}  // namespace

Result<std::unique_ptr<UserDoor>> UserDoor::open(const std::string& path, std::string_view key,
                                                 const Log& log) {
  const auto url = transport::parse_url("unix://" + path);
  if (!url) return url.error();
  auto listener = transport::listen(*url);
  if (!listener) {
    Error error = with_listening_advice(std::move(listener).error(), key);
    error.message = std::string(key) + ": " + error.message;
    return error;
  }
  return std::make_unique<UserDoor>(std::move(*listener), log);
}

UserDoor::~UserDoor() {
  listener_->shut_down();
  if (thread_.joinable()) thread_.join();
}

void UserDoor::start(Admit admit) {
  thread_ = std::thread([this, admit = std::move(admit)] { let_in(admit); });
}

void UserDoor::let_in(const Admit& admit) {
  Shortage no_connections;
  while (true) {
    auto connection = listener_->accept(transport::kNever, nullptr);
    if (!connection) {
      if (connection.error().code == ErrorCode::kLost) return;
      // No descriptor is free, or the like: it passes.
      if (no_connections.met(system_clock().now())) {
        log_.error("nobody can connect for now", {{"why", connection.error().message}});
      }
      system_clock().sleep_for(Shortage::kRest);
      continue;
    }
    const std::string identity = transport::identity_of_peer((*connection)->fd());
    Fd own(::fcntl((*connection)->fd(), F_DUPFD_CLOEXEC, 0));
    if (!own.valid()) continue;
    (*connection)->abandon();
    ::fcntl(own.get(), F_SETFL, ::fcntl(own.get(), F_GETFL) | O_NONBLOCK);
    const auto user = user_of(identity);
    const Status status = user ? admit(*user, std::move(own))
                               : Status(Error{ErrorCode::kDenied, "the system does not name it"});
    if (!status) {
      refusals_.warn("refused", {{"peer", identity}, {"reason", status.error().message}});
    }
  }
}

}  // namespace flyt::control
