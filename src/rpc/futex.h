// Futex: sleeping on a word of memory, and a lock made of it that is cheap to take and to pass on.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/annotations.h"
#include "base/clock.h"

namespace flyt::rpc {

// Sleeps while `word` holds `expected`; may return for no reason. Returns at once if it does not.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected);

// Wakes one thread that sleeps on `word`. The word may be gone by now: only its address is used.
void futex_wake_one(const std::atomic<std::uint32_t>* word);

// Tells the processor that this is a spinning loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// `wished` on a machine with at least `cores` cores, else 0: spinning for what another thread does
// is in vain where that thread has no core to run on.
Duration spin_on(long cores, Duration wished);

// A lock whose operations are all sequentially consistent: who publishes something and then fails
// to try_take() may rely on the holder to see it after give(). Safe from any thread.
class CAPABILITY("mutex") Role {
 public:
  bool try_take() TRY_ACQUIRE(true) {
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kTaken);
  }
  void take() ACQUIRE() {
    std::uint32_t expected = kFree;
    if (!state_.compare_exchange_strong(expected, kTaken)) take_slowly();
  }
  void give() RELEASE() {
    if (state_.exchange(kFree) == kAwaited) futex_wake_one(&state_);
  }

 private:
  enum : std::uint32_t { kFree, kTaken, kAwaited };
  void take_slowly() NO_THREAD_SAFETY_ANALYSIS;

  std::atomic<std::uint32_t> state_{kFree};
};

class SCOPED_CAPABILITY RoleLock {
 public:
  explicit RoleLock(Role& role) ACQUIRE(role) : role_(role) { role_.take(); }
  ~RoleLock() RELEASE() { role_.give(); }
  RoleLock(const RoleLock&) = delete;
  RoleLock& operator=(const RoleLock&) = delete;

 private:
  Role& role_;
};

}  // namespace flyt::rpc
