#include "rpc/desk.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/text.h"

namespace flyt::rpc {
namespace {

// It is a process of this machine: who takes longer to be let in will not answer either.
constexpr Duration kConnectPatience = std::chrono::seconds(2);

// Who refuses says why himself; where nobody is, this says what to do.
Error nobody_there(const std::string& socket, const std::string& what) {
  return {ErrorCode::kLost, what +
                                "; start flyt-client-manager, or name the socket of the one that"
                                " runs in FLYT_CLIENT_SOCKET: it is " +
                                socket + " now"};
}

class Visit {
 public:
  Visit(std::string socket, std::unique_ptr<transport::Connection> connection)
      : socket_(std::move(socket)), connection_(std::move(connection)) {}

  Status send(const wire::DeskMessage& message, Instant deadline) {
    const std::vector<std::byte> bytes = wire::encode(message);
    Bytes rest(bytes);
    while (!rest.empty()) {
      const std::array pieces{rest};
      const auto sent = connection_->write(pieces, transport::Patience::kNow);
      if (!sent) return sent.error();
      rest = rest.subspan(*sent);
      if (*sent == 0 && connection_->wait(transport::kWritable, deadline, nullptr) == 0) {
        return Error{ErrorCode::kTimeout, "the client manager takes no request"};
      }
    }
    return {};
  }

  // kTimeout at the deadline.
  Result<wire::DeskMessage> receive(Instant deadline) {
    for (;;) {
      auto message = wire::take_desk_message(received_);
      if (!message) return std::move(message).error();
      if (message->has_value()) return std::move(**message);
      if (system_clock().now() >= deadline ||
          connection_->wait(transport::kReadable, deadline, nullptr) == 0) {
        return Error{ErrorCode::kTimeout, "the client manager does not answer"};
      }
      std::array<std::byte, 1024> space;
      const std::array pieces{MutableBytes(space)};
      const auto got = connection_->read(pieces, transport::Patience::kNow);
      if (!got) return nobody_there(socket_, "the client manager went away");
      received_.insert(received_.end(), space.begin(),
                       space.begin() + static_cast<std::ptrdiff_t>(*got));
    }
  }

  std::unique_ptr<transport::Connection> take_connection() { return std::move(connection_); }

 private:
  const std::string socket_;
  std::unique_ptr<transport::Connection> connection_;
  std::vector<std::byte> received_;
};

Result<Visit> open(const std::string& socket, wire::DeskPurpose purpose, Duration patience) {
  const Instant now = system_clock().now();
  transport::Url url;
  url.path = socket;
  auto connection = transport::connect(url, now + std::min(patience, kConnectPatience));
  if (!connection) {
    return nobody_there(socket,
                        "the client manager does not answer: " + connection.error().message);
  }
  Visit visit(socket, std::move(connection).value());
  const wire::DeskAsk ask{purpose, static_cast<std::uint32_t>(::getpid()),
                          ::program_invocation_short_name};
  const Status sent = visit.send(ask, now + patience);
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
                             DeskPatience patience, const DeskListener& on_waiting) {
  const Instant begin = system_clock().now();
  const Instant deadline = begin + patience.all;
  auto visit = open(socket, purpose, patience.all);
  if (!visit) return std::move(visit).error();
  std::optional<wire::DeskWaiting> last;
  bool told = true;
  for (;;) {
    auto message = visit->receive(told ? deadline : std::min(deadline, begin + patience.quiet));
    const bool late = !message && message.error().code == ErrorCode::kTimeout;
    // Also where messages come without end.
    const bool over = system_clock().now() >= deadline;
    if (over && (late || (message && std::holds_alternative<wire::DeskWaiting>(*message)))) {
      return timed_out(last, patience.all);
    }
    if (!late && !message) return std::move(message).error();
    if (message) {
      if (auto* granted = std::get_if<wire::DeskGranted>(&*message)) {
        return DeskVisit{std::move(*granted), visit->take_connection()};
      }
      if (auto* refused = std::get_if<wire::DeskRefused>(&*message)) {
        return Error{refused->code, plain_text(refused->why, wire::kDeskTextBytesMax)};
      }
      auto* waiting = std::get_if<wire::DeskWaiting>(&*message);
      if (waiting == nullptr) return unexpected();
      waiting->why = plain_text(waiting->why, wire::kDeskTextBytesMax);
      if (last == *waiting) continue;
      last = *waiting;
      told = false;
    }
    if (told || system_clock().now() < begin + patience.quiet) continue;
    told = true;
    if (on_waiting) on_waiting(*last);
  }
}

Result<std::string> ask_desk_status(const std::string& socket, Duration patience) {
  const Instant deadline = system_clock().now() + patience;
  auto visit = open(socket, wire::DeskPurpose::kStatus, patience);
  if (!visit) return std::move(visit).error();
  auto message = visit->receive(deadline);
  if (!message) return std::move(message).error();
  if (auto* status = std::get_if<wire::DeskStatus>(&*message)) {
    return plain_text(status->json, wire::kDeskTextBytesMax);
  }
  if (auto* refused = std::get_if<wire::DeskRefused>(&*message)) {
    return Error{refused->code, plain_text(refused->why, wire::kDeskTextBytesMax)};
  }
  return unexpected();
}

}  // namespace flyt::rpc
