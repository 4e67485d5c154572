// Thread: a helper thread of a guest library: it takes no signals, and failing to start is an
// error, not the end of the process.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace flyt::rpc {

// Belongs to one owner. Joined at the end at the latest, so the body must have been told to stop.
class Thread {
 public:
  Thread() = default;
  ~Thread() { join(); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // `name` is cut to 15 characters.
  Status start(std::string_view name, std::function<void()> body);
  bool running() const { return running_; }
  void join();

 private:
  std::function<void()> body_;
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace flyt::rpc
