#include "tests/recovery/answer_valve.h"

#include <array>
#include <chrono>
#include <utility>

namespace flyt::tests {
namespace {

using transport::Connection;
using transport::Patience;

constexpr Duration kConnectTime = std::chrono::seconds(30);

// False: the other end is gone.
bool send(Connection& to, Bytes bytes) {
  while (!bytes.empty()) {
    const auto sent = to.write({&bytes, 1}, Patience::kWait);
    if (!sent) return false;
    bytes = bytes.subspan(*sent);
  }
  return true;
}

}  // namespace

AnswerValve::~AnswerValve() {
  if (listener_ == nullptr) return;
  listener_->shut_down();
  acceptor_.join();
  const Lock lock(mutex_);
  for (const auto& pair : pairs_) {
    pair->client->shut_down();
    pair->server->shut_down();
    pair->down.join();
    pair->up.join();
  }
}

Status AnswerValve::start(const std::string& server) {
  auto url = transport::parse_url(server);
  if (!url) return std::move(url).error();
  server_ = *url;
  transport::Url own = *url;
  own.port = 0;
  auto listener = transport::listen(own);
  if (!listener) return std::move(listener).error();
  listener_ = std::move(*listener);
  acceptor_ = std::thread([this] { accept(); });
  return {};
}

void AnswerValve::close_after(std::uint64_t pieces) {
  const Lock lock(mutex_);
  left_ = pieces;
  dropped_ = false;
}

void AnswerValve::open() {
  const Lock lock(mutex_);
  left_ = kOpen;
}

bool AnswerValve::dropped() const {
  const Lock lock(mutex_);
  return dropped_;
}

void AnswerValve::accept() {
  for (;;) {
    auto client = listener_->accept(transport::kNever, nullptr);
    if (!client) return;
    if (refusals_.load() > 0) {
      refusals_.fetch_sub(1);
      continue;
    }
    auto server = transport::connect(server_, system_clock().now() + kConnectTime);
    // Its connection ends with it: nobody listens there.
    if (!server) continue;
    auto pair = std::make_unique<Pair>();
    pair->client = std::move(*client);
    pair->server = std::move(*server);
    Pair& both = *pair;
    const Lock lock(mutex_);
    pairs_.push_back(std::move(pair));
    both.down = std::thread([this, &both] { carry_answers(both); });
    both.up = std::thread([this, &both] { carry_commands(both); });
  }
}

std::uint64_t AnswerValve::passed() const {
  const Lock lock(mutex_);
  return passed_;
}

bool AnswerValve::may_pass() {
  const Lock lock(mutex_);
  if (left_ == 0) {
    dropped_ = true;
    return false;
  }
  if (left_ != kOpen) --left_;
  ++passed_;
  return true;
}

void AnswerValve::carry_answers(Pair& pair) {
  std::array<std::byte, 64 * kKiB> buffer;
  const MutableBytes room(buffer);
  bool whole = true;
  for (;;) {
    const auto got = pair.server->read({&room, 1}, Patience::kWait);
    if (!got) break;
    whole = whole && may_pass();
    if (whole && !send(*pair.client, Bytes(buffer).first(*got))) break;
  }
  pair.client->shut_down();
}

void AnswerValve::carry_commands(Pair& pair) {
  std::array<std::byte, 64 * kKiB> buffer;
  const MutableBytes room(buffer);
  bool whole = true;
  for (;;) {
    const auto got = pair.client->read({&room, 1}, Patience::kWait);
    if (!got) break;
    whole = whole && !drops_commands_.load();
    if (!whole) {
      dropped_commands_.fetch_add(1);
    } else if (!send(*pair.server, Bytes(buffer).first(*got))) {
      break;
    }
  }
  pair.server->shut_down();
}

}  // namespace flyt::tests
