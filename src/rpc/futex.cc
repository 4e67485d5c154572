#include "rpc/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace flyt::rpc {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_one(const std::atomic<std::uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

Duration spin_on(long cores, Duration wished) {
  return ::sysconf(_SC_NPROCESSORS_ONLN) >= cores ? wished : Duration{0};
}

void Role::take_slowly() {
  // What the role guards takes well under a microsecond as a rule.
  constexpr int kSpins = 100;
  for (int i = 0; i < kSpins; ++i) {
    relax();
    if (state_.load(std::memory_order_relaxed) == kFree && try_take()) return;
  }
  while (state_.exchange(kAwaited) != kFree) futex_wait(state_, kAwaited);
}

}  // namespace flyt::rpc
