// Random: a seeded source of chance; the same seed gives the same run.
#pragma once

#include <cstdint>

namespace flyt {

// splitmix64. Not thread-safe, not for secrets.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  // True once in `n` on average.
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

// A seed from the operating system.
std::uint64_t random_seed();

// Fills `size` bytes at `out` from the operating system's generator: fit for tokens.
void random_bytes(void* out, unsigned long size);

}  // namespace flyt
