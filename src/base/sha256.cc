#include "base/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <bit>
#include <cstring>

namespace flyt {
namespace {

constexpr std::size_t kBlockBytes = 64;
using State = std::array<std::uint32_t, 8>;

constexpr State kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

alignas(64) constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Compress = void (*)(State& state, const std::byte* blocks, std::size_t count);

std::uint32_t big_endian(const std::byte* at) {
  std::uint32_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return __builtin_bswap32(word);
}

// FIPS 180-4, 6.2.2.
void compress_portable(State& state, const std::byte* blocks, std::size_t count) {
  for (; count > 0; --count, blocks += kBlockBytes) {
    std::array<std::uint32_t, 64> w;
    for (std::size_t t = 0; t < 16; ++t) w[t] = big_endian(blocks + 4 * t);
    for (std::size_t t = 16; t < 64; ++t) {
      const std::uint32_t a = w[t - 15];
      const std::uint32_t b = w[t - 2];
      w[t] = w[t - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[t - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    State s = state;
    for (std::size_t t = 0; t < 64; ++t) {
      const std::uint32_t e = s[4];
      const std::uint32_t a = s[0];
      const std::uint32_t one = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & s[5]) ^ (~e & s[6])) + kRounds[t] + w[t];
      const std::uint32_t two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                                ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
      s = {one + two, s[0], s[1], s[2], s[3] + one, s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) state[i] += s[i];
  }
}

#if defined(__x86_64__)

// As Intel's SHA extensions want it: the state in two registers, ABEF and CDGH, and four rounds a
// step, whose message words are made 16 rounds ahead.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_by_instructions(State& state,
                                                                          const std::byte* blocks,
                                                                          std::size_t count) {
  const auto load = [](const void* at) __attribute__((target("sse4.1"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  };
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i dcba = _mm_shuffle_epi32(load(state.data()), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(load(state.data() + 4), 0x1b);
  __m128i abef = _mm_alignr_epi8(dcba, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, dcba, 0xf0);
  for (; count > 0; --count, blocks += kBlockBytes) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (std::size_t i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(load(blocks + 16 * i), swap);
    }
    for (std::size_t step = 0; step < 16; ++step) {
      __m128i& now = w[step % 4];
      if (step >= 4) {
        const __m128i last = w[(step + 3) % 4];
        now = _mm_sha256msg1_epu32(now, w[(step + 1) % 4]);
        now = _mm_add_epi32(now, _mm_alignr_epi8(last, w[(step + 2) % 4], 4));
        now = _mm_sha256msg2_epu32(now, last);
      }
      const __m128i sum = _mm_add_epi32(now, load(kRounds.data() + 4 * step));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(state.data())),
                   _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(state.data() + 4)),
                   _mm_alignr_epi8(dchg, feba, 8));
}

bool has_instructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kSsse3And41 = (1U << 9) | (1U << 19);
  constexpr unsigned kSha = 1U << 29;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSsse3And41) != kSsse3And41) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

Compress best() { return has_instructions() ? compress_by_instructions : compress_portable; }

#else

Compress best() { return compress_portable; }

#endif

Digest hash(Bytes bytes, Compress compress) {
  State state = kStart;
  const std::size_t whole = bytes.size() / kBlockBytes;
  compress(state, bytes.data(), whole);
  // The rest, a bit 1, zeros, and the length in bits.
  const Bytes rest = bytes.subspan(whole * kBlockBytes);
  std::array<std::byte, 2 * kBlockBytes> last{};
  if (!rest.empty()) std::memcpy(last.data(), rest.data(), rest.size());
  last[rest.size()] = std::byte{0x80};
  const std::size_t blocks = rest.size() + 9 <= kBlockBytes ? 1 : 2;
  const std::uint64_t bits = __builtin_bswap64(std::uint64_t{bytes.size()} * 8);
  std::memcpy(last.data() + blocks * kBlockBytes - sizeof bits, &bits, sizeof bits);
  compress(state, last.data(), blocks);
  Digest digest;
  for (std::size_t i = 0; i < state.size(); ++i) {
    const std::uint32_t word = __builtin_bswap32(state[i]);
    std::memcpy(digest.data() + 4 * i, &word, sizeof word);
  }
  return digest;
}

}  // namespace

Digest sha256(Bytes bytes) {
  static const Compress compress = best();
  return hash(bytes, compress);
}

Digest sha256_portable(Bytes bytes) { return hash(bytes, compress_portable); }

std::string to_hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace flyt
