#include "server/parent/lobby.h"

#include <algorithm>
#include <array>
#include <utility>

#include "transport/peek.h"
#include "wire/hello.h"

namespace flyt::server {
namespace {

// How often a hello that has come in part is looked at again.
constexpr Duration kLookAgain = std::chrono::milliseconds(20);
// The same whether the process is gone of who goes on in another one.
constexpr Duration kLookForReturn = std::chrono::milliseconds(5);

enum class Heard : std::uint8_t { kNothing, kPart, kAll, kGone };

bool has_gone(transport::Connection& connection) {
  return connection.wait(transport::kHangup, {0}, nullptr) != transport::kNothing;
}

// Looks without taking: whoever serves the client reads the hello.
Heard look_at(transport::Connection& connection) {
  std::array<std::byte, wire::kHelloBytesMax> bytes;
  const auto there = transport::peek(connection.fd(), bytes);
  if (!there) return Heard::kGone;
  if (*there == 0) return Heard::kNothing;
  if (has_gone(connection)) return Heard::kGone;
  if (*there < wire::kHelloPrefixBytes) return Heard::kPart;
  const auto prefix = wire::decode_hello_prefix(Bytes(bytes).first(wire::kHelloPrefixBytes));
  if (!prefix) return Heard::kAll;
  const std::size_t whole = wire::kHelloPrefixBytes + prefix->records_bytes;
  return *there < whole ? Heard::kPart : Heard::kAll;
}

std::string without_port(std::string peer) {
  if (peer.starts_with("tcp://")) peer.resize(peer.rfind(':'));
  return peer;
}

}  // namespace

std::unique_ptr<transport::Connection> Lobby::enter(
    std::unique_ptr<transport::Connection> connection, bool share) {
  std::string peer = without_port(connection->peer());
  const auto of_peer = [&](const Waiting& one) { return one.peer == peer; };
  const auto count =
      static_cast<std::size_t>(std::count_if(waiting_.begin(), waiting_.end(), of_peer));
  auto goes = waiting_.end();
  if (count >= kWaitingOfOneMax) {
    goes = std::find_if(waiting_.begin(), waiting_.end(), of_peer);
  } else if (waiting_.size() >= kWaitingMax) {
    goes = waiting_.begin();
  }
  std::unique_ptr<transport::Connection> out;
  if (goes != waiting_.end()) {
    out = std::move(goes->connection);
    waiting_.erase(goes);
  }
  waiting_.push_back({std::move(connection), std::move(peer), clock_.now(), share});
  return out;
}

std::unique_ptr<transport::Connection> Lobby::give_way() {
  std::unique_ptr<transport::Connection> out;
  if (!waiting_.empty()) {
    out = std::move(waiting_.front().connection);
    waiting_.pop_front();
  } else if (!held_.empty()) {
    out = std::move(held_.front().connection);
    held_.erase(held_.begin());
  }
  return out;
}

void Lobby::add_to(std::vector<pollfd>& wanted) const {
  for (const Waiting& one : waiting_) {
    if (!one.begun) wanted.push_back({one.connection->fd(), POLLIN, 0});
  }
}

bool Lobby::hold(Guest& guest) {
  const auto new_ones = std::count_if(held_.begin(), held_.end(),
                                      [](const Guest& held) { return held.goes_on == 0; });
  const bool room =
      guest.goes_on == 0 ? static_cast<std::size_t>(new_ones) < kHeldMax : !holds(guest.goes_on);
  if (!room) return false;
  held_.push_back(std::move(guest));
  return true;
}

bool Lobby::holds(std::uint64_t session) const {
  return std::any_of(held_.begin(), held_.end(),
                     [session](const Guest& guest) { return guest.goes_on == session; });
}

int Lobby::timeout_ms() const {
  if (size() == 0) return -1;
  Duration left = kWaitMax;
  if (!waiting_.empty()) left = waiting_.front().since + kWaitMax - clock_.now();
  for (const Guest& guest : held_) {
    left = std::min(left, *guest.held_until - clock_.now());
    if (guest.goes_on != 0) left = std::min(left, kLookForReturn);
  }
  const bool begun =
      std::any_of(waiting_.begin(), waiting_.end(), [](const Waiting& one) { return one.begun; });
  if (begun) left = std::min(left, kLookAgain);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::max<std::int64_t>(ms + 1, 0));
}

Lobby::Leaving Lobby::leave() {
  Leaving leaving;
  for (Guest& guest : std::exchange(held_, {})) {
    if (has_gone(*guest.connection)) {
      leaving.gone.push_back(std::move(guest.connection));
    } else {
      leaving.ready.push_back(std::move(guest));
    }
  }
  const Instant now = clock_.now();
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    const Heard heard = look_at(*one->connection);
    if (heard == Heard::kAll) {
      leaving.ready.push_back({std::move(one->connection), one->share});
    } else if (heard == Heard::kGone) {
      // Nobody is left to be told anything.
      leaving.gone.push_back(std::move(one->connection));
    } else if (now - one->since >= kWaitMax) {
      leaving.late.push_back(std::move(one->connection));
    } else {
      one->begun = heard == Heard::kPart;
      ++one;
      continue;
    }
    one = waiting_.erase(one);
  }
  return leaving;
}

void Lobby::Leaving::abandon() {
  for (const Guest& guest : ready) {
    if (guest.connection != nullptr) guest.connection->abandon();
  }
  for (const auto& one : late) one->abandon();
  for (const auto& one : gone) one->abandon();
}

void Lobby::abandon() {
  for (Waiting& one : waiting_) one.connection->abandon();
  waiting_.clear();
  for (Guest& guest : held_) guest.connection->abandon();
  held_.clear();
}

}  // namespace flyt::server
