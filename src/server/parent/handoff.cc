#include "server/parent/handoff.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/random.h"
#include "rpc/endpoint.h"
#include "transport/peek.h"

namespace flyt::server {
namespace {

// The socket's buffer takes a refusal at once, unless the client is up to something.
constexpr Duration kRefusalTime = std::chrono::milliseconds(100);
constexpr char kMayShare = '+';
constexpr char kSocketOnly = '-';

void refuse(transport::Connection& connection, const wire::Refusal& refusal) {
  const Instant deadline = system_clock().now() + kRefusalTime;
  static_cast<void>(rpc::send_refusal(connection, refusal, deadline).ok());
}
void refuse(transport::Connection& connection, wire::RefusalCode code, std::string_view reason) {
  refuse(connection, {code, std::string(reason)});
}

}  // namespace

Result<Ends> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe2", errno);
  return Ends{Fd(ends[0]), Fd(ends[1])};
}

Result<Ends> make_socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("socketpair", errno);
  }
  return Ends{Fd(ends[0]), Fd(ends[1])};
}

void make_impatient(const Fd& end) {
  ::fcntl(end.get(), F_SETFL, ::fcntl(end.get(), F_GETFL) | O_NONBLOCK);
}

void close_to_sender(const Fd& end) { ::shutdown(end.get(), SHUT_RD); }

wire::SessionToken make_token() {
  wire::SessionToken token{};
  random_bytes(token.data(), token.size());
  return token;
}

bool same_token(const wire::SessionToken& one, const wire::SessionToken& other) {
  unsigned differences = 0;
  for (std::size_t i = 0; i < one.size(); ++i) differences |= one[i] ^ other[i];
  return differences == 0;
}

std::string encode(const ClientNote& note) {
  std::string text(1, note.may_share ? kMayShare : kSocketOnly);
  return text + std::string(text_of(bytes_at(note.token.data(), note.token.size())));
}

ClientNote decode_client_note(std::string_view text) {
  ClientNote note;
  if (text.size() != 1 + note.token.size()) return note;
  note.may_share = text.front() == kMayShare;
  std::copy(text.begin() + 1, text.end(), note.token.begin());
  return note;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 1024> piece;
  while (true) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

bool may_have_lanes(const transport::Connection& connection) {
  return connection.peer().starts_with("tcp://");
}

void refuse_late(transport::Connection& connection) {
  refuse(connection, wire::RefusalCode::kMalformed, kNoHello);
}

void refuse_bad_hello(transport::Connection& connection, const Error& why) {
  refuse(connection, rpc::refusal_of(why));
}

void refuse_to_go_on(transport::Connection& connection, std::string_view why) {
  refuse(connection, wire::RefusalCode::kNoSession, why);
}

void refuse_unknown_session(transport::Connection& connection) {
  refuse(connection, wire::RefusalCode::kNoSession, "no session of this server has this token");
}

void refuse_full(transport::Connection& connection) {
  refuse(connection, wire::RefusalCode::kFull, "the server has no room for another session");
}

void refuse_at_the_end(transport::Connection& connection) {
  refuse(connection, wire::RefusalCode::kFull, kAtTheEnd);
}

void refuse_denied(transport::Connection& connection, std::string_view why) {
  refuse(connection, wire::RefusalCode::kDenied, why);
}

void refuse_gpu_full(transport::Connection& connection, std::string_view why) {
  refuse(connection, wire::RefusalCode::kGpuFull, why);
}

void refuse_without_driver(transport::Connection& connection, std::string_view why) {
  refuse(connection, wire::RefusalCode::kNoDriver, why);
}

Result<wire::ClientHello> peek_hello(const transport::Connection& connection) {
  std::array<std::byte, wire::kHelloBytesMax> bytes;
  const auto there = transport::peek(connection.fd(), bytes);
  if (!there) return there.error();
  const auto prefix = wire::decode_hello_prefix(Bytes(bytes).first(*there));
  if (!prefix) return prefix.error();
  const std::size_t size = wire::kHelloPrefixBytes + prefix->records_bytes;
  return rpc::judge_hello(Bytes(bytes).first(std::min(size, *there)));
}

void close_in_child(transport::Listener& listener) { ::close(listener.fd()); }

}  // namespace flyt::server
