#include "cuda/md2.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/assert.h"

namespace flyt::cuda {
namespace {

constexpr std::size_t kBlockBytes = 16;
constexpr int kRounds = 18;

// The permutation of 0..255 that RFC 1319 derives from the digits of pi.
constexpr std::array<std::uint8_t, 256> kPi = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,   //
    98,  167, 5,   243, 192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202,  //
    30,  155, 87,  60,  253, 212, 224, 22,  103, 66,  111, 24,  138, 23,  229, 18,   //
    190, 78,  196, 214, 218, 158, 222, 73,  160, 251, 245, 142, 187, 47,  238, 122,  //
    169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137, 11,  34,  95,  33,   //
    128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151, 3,    //
    255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198,  //
    79,  184, 56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241,  //
    69,  157, 112, 89,  100, 113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,    //
    27,  96,  37,  173, 174, 176, 185, 246, 28,  70,  97,  105, 52,  64,  126, 15,   //
    85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249, 206, 186, 197, 234, 38,   //
    44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129, 77,  82,   //
    106, 220, 55,  200, 108, 193, 171, 250, 36,  225, 123, 8,   12,  189, 177, 74,   //
    120, 136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254, 59,  0,   29,  57,   //
    242, 239, 183, 14,  102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,   //
    49,  68,  80,  180, 143, 237, 31,  26,  219, 153, 141, 51,  159, 17,  131, 20};

// The state of RFC 1319 section 3.4; `checksum` is that of section 3.2.
struct State {
  std::array<std::uint8_t, 3 * kBlockBytes> x{};
  std::array<std::uint8_t, kBlockBytes> checksum{};
  std::uint8_t last = 0;

  void absorb(const std::uint8_t* block) {
    for (std::size_t i = 0; i < kBlockBytes; ++i) {
      x[kBlockBytes + i] = block[i];
      x[2 * kBlockBytes + i] = block[i] ^ x[i];
    }
    unsigned t = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (std::uint8_t& value : x) {
        value ^= kPi[t];
        t = value;
      }
      t = (t + static_cast<unsigned>(round)) & 0xFF;
    }
  }
  void add_to_checksum(const std::uint8_t* block) {
    for (std::size_t i = 0; i < kBlockBytes; ++i) {
      checksum[i] ^= kPi[block[i] ^ last];
      last = checksum[i];
    }
  }
};

}  // namespace

Md2Digest md2(Bytes message) {
  State state;
  std::array<std::uint8_t, kBlockBytes> block;
  while (message.size() >= kBlockBytes) {
    std::memcpy(block.data(), message.data(), kBlockBytes);
    state.absorb(block.data());
    state.add_to_checksum(block.data());
    message = message.subspan(kBlockBytes);
  }
  // The last block is filled up with bytes that tell how many they are.
  block.fill(static_cast<std::uint8_t>(kBlockBytes - message.size()));
  if (!message.empty()) std::memcpy(block.data(), message.data(), message.size());
  state.absorb(block.data());
  state.add_to_checksum(block.data());
  const std::array<std::uint8_t, kBlockBytes> checksum = state.checksum;
  state.absorb(checksum.data());
  Md2Digest digest;
  std::memcpy(digest.data(), state.x.data(), digest.size());
  return digest;
}

Md2Digest hmac_md2(Bytes key, Bytes message) {
  FLYT_ASSERT(key.size() <= kBlockBytes);
  std::array<std::byte, kBlockBytes> inner;
  inner.fill(std::byte{0x36});
  std::array<std::byte, kBlockBytes> outer;
  outer.fill(std::byte{0x5C});
  for (std::size_t i = 0; i < key.size(); ++i) {
    inner[i] ^= key[i];
    outer[i] ^= key[i];
  }
  std::vector<std::byte> text(inner.begin(), inner.end());
  text.insert(text.end(), message.begin(), message.end());
  const Md2Digest inside = md2(text);
  text.assign(outer.begin(), outer.end());
  text.insert(text.end(), inside.begin(), inside.end());
  return md2(text);
}

}  // namespace flyt::cuda
