#include "base/hmac.h"

#include <algorithm>
#include <array>
#include <vector>

namespace flyt {
namespace {

constexpr std::size_t kBlockBytes = 64;

}  // namespace

Digest hmac_sha256(Bytes key, Bytes message) {
  std::array<std::byte, kBlockBytes> block{};
  if (key.size() > block.size()) {
    const Digest digest = sha256(key);
    std::copy(digest.begin(), digest.end(), block.begin());
  } else {
    std::copy(key.begin(), key.end(), block.begin());
  }
  const auto hash = [&block](std::byte pad, Bytes rest) {
    std::vector<std::byte> text(block.begin(), block.end());
    for (std::byte& byte : text) byte ^= pad;
    text.insert(text.end(), rest.begin(), rest.end());
    return sha256(text);
  };
  const Digest inner = hash(std::byte{0x36}, message);
  return hash(std::byte{0x5c}, inner);
}

bool equal_in_constant_time(Bytes a, Bytes b) {
  if (a.size() != b.size()) return false;
  // volatile: no compiler may leave early.
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | static_cast<unsigned char>(a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace flyt
