// Loss: whether a client's session is lost, for ever, and why.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "base/annotations.h"
#include "base/result.h"
#include "rpc/channel.h"
#include "transport/transport.h"

namespace flyt::rpc {

// Safe from any thread.
class Loss {
 public:
  Loss(transport::Connection& connection, PushHandler& pushes)
      : connection_(connection), pushes_(pushes) {}

  // What else is to be ended, with no lock held. Before threads share this.
  void on_loss(std::function<void()> end) { end_ = std::move(end); }

  // It was lost because the connection ended, not because anybody meant to end it. Once lost().
  bool cut() const { return cut_.load(std::memory_order_acquire); }

  bool lost() const { return (state_.load(std::memory_order_acquire) & kLost) != 0; }

  // The session is lost, or somebody watches what is sent: one load and one test for posting, which
  // else goes on at once.
  bool notable() const { return state_.load(std::memory_order_acquire) != 0; }
  void watch() { state_.fetch_or(kWatched); }

  // The first reason stays. Tells the handler, then shuts the connection down, which wakes
  // whoever reads, writes or waits there; the reader in turn wakes those that wait for it. It is
  // lost() when this returns, whoever was first.
  void declare(Error error) { declare_as(std::move(error), false); }

  // The connection fails to send. It is shut down, and `error` becomes the reason unless whoever
  // reads what has already arrived finds a better one there: the server's own.
  void suspect(Error error);
  // Reading came to an end: the suspected reason if there is one, else `error`.
  void declare_end(Error error);

  // In the child after a fork: no lock is taken and nobody is told.
  void abandon() {
    abandoned_.store(true);
    state_.fetch_or(kLost);
  }
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

  Error error() const;

 private:
  void declare_as(Error error, bool cut);

  transport::Connection& connection_;
  PushHandler& pushes_;
  std::function<void()> end_;
  static constexpr std::uint8_t kLost = 1;
  static constexpr std::uint8_t kWatched = 2;
  std::atomic<std::uint8_t> state_{0};
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> cut_{false};
  Mutex telling_;  // Held by whoever is first until it is lost(). Before mutex_.
  mutable Mutex mutex_;
  std::optional<Error> suspected_ GUARDED_BY(mutex_);
  Error error_ GUARDED_BY(mutex_);
};

}  // namespace flyt::rpc
