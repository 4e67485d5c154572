#include "client/recovery/recovery_thread.h"

#include <chrono>

#include "client/session.h"
#include "rpc/channel.h"

namespace flyt::client {
namespace {

// How soon a session goes on that nobody uses; servers forget it after a second at the earliest.
constexpr auto kLookEvery = std::chrono::milliseconds(500);

}  // namespace

RecoveryThread::~RecoveryThread() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void RecoveryThread::start() {
  static_cast<void>(thread_.start("flyt-recovery", [this] { run(); }));
}

void RecoveryThread::run() {
  while (wait()) {
    session_.channel().take_in();
    if (session_.channel().lost() && session_.health() != CUDA_SUCCESS) return;
  }
}

bool RecoveryThread::wait() {
  const Lock lock(mutex_);
  // To look too soon does no harm.
  if (!stopping_) stopped_.wait_for(mutex_, kLookEvery);
  return !stopping_;
}

}  // namespace flyt::client
