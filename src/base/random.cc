#include "base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "base/assert.h"

namespace flyt {

void random_bytes(void* out, unsigned long size) {
  auto* at = static_cast<unsigned char*>(out);
  while (size > 0) {
    const ssize_t got = ::getrandom(at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    FLYT_ASSERT(got > 0);
    at += got;
    size -= static_cast<unsigned long>(got);
  }
}

std::uint64_t random_seed() {
  std::uint64_t seed;
  random_bytes(&seed, sizeof seed);
  return seed;
}

}  // namespace flyt
