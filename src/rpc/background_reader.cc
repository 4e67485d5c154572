#include "rpc/background_reader.h"

#include <algorithm>

namespace flyt::rpc {
namespace {

// While calling threads read, this one looks after them at growing intervals.
constexpr Duration kLookFirst = std::chrono::microseconds(500);
constexpr Duration kLookLast = std::chrono::milliseconds(4);

}  // namespace

void BackgroundReader::expect(std::int64_t change) {
  const std::int64_t before = expected_.fetch_add(change);
  FLYT_ASSERT(before + change >= 0);
  if (started_.load()) {
    if (needed() && idle_.exchange(false)) wakeup_.signal();
    return;
  }
  const Lock lock(mutex_);
  if (!needed() || stopping_.load() || started_.exchange(true)) return;
  const Status started = thread_.start("flyt-read", [this] { run(); });
  if (!started) loss_.declare(Error{ErrorCode::kLost, started.error().message});
}

void BackgroundReader::stop() {
  stopping_.store(true);
  wakeup_.signal();
  const Lock lock(mutex_);
  thread_.join();
}

void BackgroundReader::run() {
  while (!stopping_.load() && !loss_.lost()) {
    if (!needed()) {
      idle_.store(true);
      // Nothing is asked of the connection here: only the wake-up ends this.
      if (!needed() && !stopping_.load()) {
        connection_.wait(transport::kNothing, transport::kNever, &wakeup_);
      }
      idle_.store(false);
    } else if (inbox_.has_reader()) {
      let_others_read();
    } else {
      const transport::ReadySet ready =
          connection_.wait(transport::kReadable, transport::kNever, &wakeup_);
      if ((ready & transport::kReadable) != 0) inbox_.read_if_nobody_does();
    }
  }
}

void BackgroundReader::let_others_read() {
  Duration pause = kLookFirst;
  while (inbox_.has_reader() && needed() && !stopping_.load() && !loss_.lost()) {
    connection_.wait(transport::kNothing, clock_.now() + pause, &wakeup_);
    pause = std::min(pause * 2, kLookLast);
  }
}

}  // namespace flyt::rpc
