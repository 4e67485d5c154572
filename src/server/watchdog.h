// Watchdog: ends a session's process when its client has gone, even if the driver hangs.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "rpc/endpoint.h"

namespace flyt::server {

// At the peer's hang-up `gone` is called, on the watchdog's thread. From then on the session has
// kGrace to end by itself; then `expired` is called there, which should end the process: the
// operating system and the driver's kernel part then free everything, whatever hangs.
class Watchdog {
 public:
  static constexpr Duration kGrace = std::chrono::milliseconds(300);

  Watchdog(const rpc::Endpoint& endpoint, const Clock& clock, std::function<void()> gone,
           std::function<void()> expired);
  // The session ended by itself.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void loop();

  const rpc::Endpoint& endpoint_;
  const Clock& clock_;
  std::function<void()> gone_;
  std::function<void()> expired_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace flyt::server
