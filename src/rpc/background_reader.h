// BackgroundReader: a thread that reads the socket while the server may send something on its own
// account and no thread of the application happens to be reading.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/annotations.h"
#include "rpc/deliveries.h"
#include "rpc/inbox.h"
#include "rpc/loss.h"
#include "rpc/thread.h"
#include "transport/transport.h"

namespace flyt::rpc {

// The thread is started when it is first needed and sleeps while nothing is expected. It never
// holds the reader's role while it waits for bytes, so a calling thread need not wait for it.
// expect() is safe from any thread; stop() belongs to the owner.
class BackgroundReader {
 public:
  BackgroundReader(transport::Connection& connection, Inbox& inbox, const Deliveries& deliveries,
                   Loss& loss, const Clock& clock)
      : connection_(connection),
        inbox_(inbox),
        deliveries_(deliveries),
        loss_(loss),
        clock_(clock) {}

  // Adds to the number of things expected; 0 after a detached delivery was announced. A thread
  // that cannot be started loses the session.
  void expect(std::int64_t change);

  // How many there are.
  std::int64_t expected() const { return expected_.load(); }

  void stop();

 private:
  bool needed() const { return expected_.load() > 0 || deliveries_.detached_count() > 0; }
  void run();
  void let_others_read();

  transport::Connection& connection_;
  Inbox& inbox_;
  const Deliveries& deliveries_;
  Loss& loss_;
  const Clock& clock_;
  std::atomic<std::int64_t> expected_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> started_{false};
  std::atomic<bool> idle_{false};  // The thread sleeps because nothing is expected.
  transport::Wakeup wakeup_;
  Mutex mutex_;
  Thread thread_ GUARDED_BY(mutex_);
};

}  // namespace flyt::rpc
