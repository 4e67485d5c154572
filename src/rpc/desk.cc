#include "rpc/desk.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <vector>

namespace flyt::rpc {
namespace {

// It is a process of this machine: who takes longer to be let in will not answer either.
constexpr Duration kConnectPatience = std::chrono::seconds(2);

class Visit {
 public:
  Visit(std::unique_ptr<transport::Connection> connection, Instant deadline)
      : connection_(std::move(connection)), deadline_(deadline) {}

  Status send(const wire::DeskMessage& message) {
    const std::vector<std::byte> bytes = wire::encode(message);
    Bytes rest(bytes);
    while (!rest.empty()) {
      const std::array pieces{rest};
      const auto sent = connection_->write(pieces, transport::Patience::kNow);
      if (!sent) return sent.error();
      rest = rest.subspan(*sent);
      if (*sent == 0 && connection_->wait(transport::kWritable, deadline_, nullptr) == 0) {
        return Error{ErrorCode::kTimeout, "the client manager takes no request"};
      }
    }
    return {};
  }

  // kTimeout at the deadline.
  Result<wire::DeskMessage> receive() {
    for (;;) {
      auto message = wire::take_desk_message(received_);
      if (!message) return std::move(message).error();
      if (message->has_value() && system_clock().now() < deadline_) return std::move(**message);
      // Also where messages come without end.
      if (system_clock().now() >= deadline_ ||
          connection_->wait(transport::kReadable, deadline_, nullptr) == 0) {
        return Error{ErrorCode::kTimeout, "the client manager does not answer"};
      }
      std::array<std::byte, 1024> space;
      const std::array pieces{MutableBytes(space)};
      const auto got = connection_->read(pieces, transport::Patience::kNow);
      if (!got) return Error{ErrorCode::kLost, "the client manager went away"};
      received_.insert(received_.end(), space.begin(),
                       space.begin() + static_cast<std::ptrdiff_t>(*got));
    }
  }

  std::unique_ptr<transport::Connection> take_connection() { return std::move(connection_); }

 private:
  std::unique_ptr<transport::Connection> connection_;
  const Instant deadline_;
  std::vector<std::byte> received_;
};

Result<Visit> open(const std::string& socket, wire::DeskPurpose purpose, Duration patience) {
  const Instant now = system_clock().now();
  transport::Url url;
  url.path = socket;
  auto connection = transport::connect(url, now + std::min(patience, kConnectPatience));
  if (!connection) {
    return Error{ErrorCode::kLost,
                 "the client manager does not answer: " + connection.error().message};
  }
  Visit visit(std::move(connection).value(), now + patience);
  const Status sent = visit.send(wire::DeskAsk{purpose, static_cast<std::uint32_t>(::getpid()),
                                               ::program_invocation_short_name});
  if (!sent) return sent.error();
  return visit;
}

Error unexpected() { return {ErrorCode::kInvalid, "the client manager answers something else"}; }

Error timed_out(const std::optional<wire::DeskWaiting>& waiting, Duration patience) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience).count();
  std::string text = "no GPU within " + std::to_string(seconds) + " s";
  if (waiting) {
    text += ": " + std::to_string(waiting->ahead) + " ahead of it";
    if (!waiting->why.empty()) text += "; " + waiting->why;
  } else {
    text += ": the client manager does not answer";
  }
  return {ErrorCode::kTimeout, std::move(text)};
}

}  // namespace

std::string desk_socket() {
  const char* set = ::getenv("FLYT_CLIENT_SOCKET");
  return set == nullptr || *set == '\0' ? kDeskSocket : set;
}

bool has_desk(const std::string& socket) {
  struct stat file {};
  return ::stat(socket.c_str(), &file) == 0 && S_ISSOCK(file.st_mode);
}

Result<DeskVisit> visit_desk(const std::string& socket, wire::DeskPurpose purpose,
                             Duration patience, const DeskListener& on_waiting) {
  auto visit = open(socket, purpose, patience);
  if (!visit) return std::move(visit).error();
  std::optional<wire::DeskWaiting> last;
  for (;;) {
    auto message = visit->receive();
    if (!message && message.error().code == ErrorCode::kTimeout) return timed_out(last, patience);
    if (!message) return std::move(message).error();
    if (auto* granted = std::get_if<wire::DeskGranted>(&*message)) {
      return DeskVisit{std::move(*granted), visit->take_connection()};
    }
    if (auto* refused = std::get_if<wire::DeskRefused>(&*message)) {
      return Error{refused->code, std::move(refused->why)};
    }
    auto* waiting = std::get_if<wire::DeskWaiting>(&*message);
    if (waiting == nullptr) return unexpected();
    if (last == *waiting) continue;
    last = *waiting;
    if (on_waiting) on_waiting(*waiting);
  }
}

Result<std::string> ask_desk_status(const std::string& socket, Duration patience) {
  auto visit = open(socket, wire::DeskPurpose::kStatus, patience);
  if (!visit) return std::move(visit).error();
  auto message = visit->receive();
  if (!message) return std::move(message).error();
  if (auto* status = std::get_if<wire::DeskStatus>(&*message)) return std::move(status->json);
  if (auto* refused = std::get_if<wire::DeskRefused>(&*message)) {
    return Error{refused->code, std::move(refused->why)};
  }
  return unexpected();
}

}  // namespace flyt::rpc
