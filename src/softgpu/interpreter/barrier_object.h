// Phase: an mbarrier object, as it lies in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace flyt::ptx {

// An mbarrier object, 8 bytes of shared memory; programs do not look into it.
struct Phase {
  std::uint64_t word = 0;

  static constexpr std::uint64_t kCount = (1u << 20) - 1;
  static constexpr unsigned kExpected = 20;
  static constexpr unsigned kBytes = 40;
  static constexpr unsigned kBytesBits = 22;
  static constexpr unsigned kParity = 63;

  std::uint64_t pending() const { return word & kCount; }
  std::uint64_t expected() const { return word >> kExpected & kCount; }
  // Bytes that were announced and have not come; modulo 2^22, may be below zero meanwhile.
  std::uint64_t bytes() const { return word >> kBytes & ((1u << kBytesBits) - 1); }
  std::uint64_t parity() const { return word >> kParity; }

  static Phase make(std::uint64_t parity, std::uint64_t bytes, std::uint64_t expected,
                    std::uint64_t pending) {
    return {parity << kParity | (bytes & ((1u << kBytesBits) - 1)) << kBytes |
            (expected & kCount) << kExpected | (pending & kCount)};
  }
  Phase arrived(std::uint64_t count, std::uint64_t dropped) const {
    return make(parity(), bytes(), expected() - dropped, pending() - count);
  }
  Phase announced(std::uint64_t more) const {
    return make(parity(), bytes() + more, expected(), pending());
  }
  Phase settled() const {
    if (pending() != 0 || bytes() != 0) return *this;
    return make(parity() ^ 1, 0, expected(), expected());
  }
};

inline Phase load_phase(const std::byte* place) {
  Phase phase;
  std::memcpy(&phase.word, place, sizeof(phase.word));
  return phase;
}
inline void store_phase(std::byte* place, Phase phase) {
  std::memcpy(place, &phase.word, sizeof(phase.word));
}
// An asynchronous operation has brought its bytes.
inline void complete_bytes(std::byte* place, std::uint64_t bytes) {
  store_phase(place, load_phase(place).announced(0 - bytes).settled());
}

}  // namespace flyt::ptx
