#include "cuda/code_packing.h"

#include <zstd.h>

namespace flyt::cuda {
namespace {

constexpr int kLevel = 1;  // The fastest: the link is slow, but not that slow.

}  // namespace

std::vector<std::byte> pack_code(Bytes code) {
  std::vector<std::byte> packed(ZSTD_compressBound(code.size()));
  const std::size_t used =
      ZSTD_compress(packed.data(), packed.size(), code.data(), code.size(), kLevel);
  if (ZSTD_isError(used) != 0 || used > code.size() - code.size() / 8) return {};
  if (code.size() / kPackedRatioMax > used) return {};
  packed.resize(used);
  return packed;
}

Result<std::vector<std::byte>> unpack_code(Bytes packed, std::uint64_t size) {
  if (size / kPackedRatioMax > packed.size()) {
    return Error{ErrorCode::kLimit, "packed code unpacks to too many bytes"};
  }
  std::vector<std::byte> code(static_cast<std::size_t>(size) + 1);
  const std::size_t got =
      ZSTD_decompress(code.data(), code.size() - 1, packed.data(), packed.size());
  if (ZSTD_isError(got) != 0 || got != size) {
    return Error{ErrorCode::kInvalid, "packed code is damaged"};
  }
  code.back() = std::byte{0};
  return code;
}

}  // namespace flyt::cuda
