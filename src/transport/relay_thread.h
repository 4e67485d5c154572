// RelayThread: carries bytes one way between two sockets, later than they come.
#pragma once

#include <pthread.h>

#include <atomic>

#include "transport/delay_line.h"
#include "transport/transport.h"

namespace flyt::transport {

// Ends when the source has ended and everything was passed on, or a socket fails. Belongs to one
// owner, which keeps both sockets open until the end.
class RelayThread {
 public:
  RelayThread(int from, int to, Duration delay) : from_(from), to_(to), delay_(delay) {}
  ~RelayThread() { finish(Instant{}); }
  RelayThread(const RelayThread&) = delete;
  RelayThread& operator=(const RelayThread&) = delete;

  Status start();
  // Waits until it has ended by itself, but not beyond `deadline`.
  void finish(Instant deadline);

 private:
  static void* entry(void* self);
  void run();
  // False: this direction is over.
  bool step(DelayLine& line, MutableBytes scratch);
  bool receive(DelayLine& line, MutableBytes scratch);
  void give_up();

  const int from_;
  const int to_;
  const Duration delay_;
  Wakeup wakeup_;
  std::atomic<std::int64_t> give_up_ns_{INT64_MAX};
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace flyt::transport
