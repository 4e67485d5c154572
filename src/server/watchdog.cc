#include "server/watchdog.h"

namespace flyt::server {
namespace {

// How long one wait for the hang-up lasts, and thus how long the destructor may take.
constexpr Duration kTurn = std::chrono::milliseconds(100);
constexpr Duration kGraceTurn = std::chrono::milliseconds(10);

}  // namespace

Watchdog::Watchdog(const rpc::Endpoint& endpoint, const Clock& clock, std::function<void()> gone,
                   std::function<void()> expired)
    : endpoint_(endpoint), clock_(clock), gone_(std::move(gone)), expired_(std::move(expired)) {
  thread_ = std::thread([this] { loop(); });
}

Watchdog::~Watchdog() {
  stopping_.store(true);
  thread_.join();
}

void Watchdog::loop() {
  while (!stopping_.load() && !endpoint_.wait_for_hangup(clock_.now() + kTurn)) {
  }
  if (stopping_.load()) return;
  gone_();
  const Instant last = clock_.now() + kGrace;
  while (!stopping_.load()) {
    if (clock_.now() >= last) return expired_();
    clock_.sleep_for(kGraceTurn);
  }
}

}  // namespace flyt::server
