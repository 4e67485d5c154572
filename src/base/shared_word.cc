#include "base/shared_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace flyt {

void SharedWord::advance() {
  word_.fetch_add(1, std::memory_order_release);
  rouse();
}

void SharedWord::advance_from(std::uint32_t seen) {
  if (word_.compare_exchange_strong(seen, seen + 1)) rouse();
}

void SharedWord::rouse() { ::syscall(SYS_futex, &word_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void SharedWord::wait(std::uint32_t seen, Duration at_most) const {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t ns = at_most.count();
  if (ns <= 0) return;
  const timespec time{ns / kSecond, ns % kSecond};
  ::syscall(SYS_futex, &word_, FUTEX_WAIT, seen, &time, nullptr, 0);
}

}  // namespace flyt
