// TensorMap: what the software GPU has in the 128 bytes of a CUtensorMap. Programs may keep one in
// any memory of the device, so that whoever reads it trusts nothing.
#pragma once

#include <array>
#include <cstdint>

namespace flyt::ptx {

inline constexpr unsigned kTensorRankMax = 5;
inline constexpr unsigned kTensorBoxMax = 256;

// As CUDA's enumerations of maps have them.
enum class TensorType : std::uint8_t {
  kU8,
  kU16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF16,
  kF32,
  kF64,
  kBF16,
  kF32Ftz,
  kTF32,
  kTF32Ftz
};
enum class TensorSwizzle : std::uint8_t { kNone, k32, k64, k128 };

struct TensorMap {
  enum class Mode : std::uint8_t { kTiled, kIm2col, kIm2colWide };
  static constexpr std::uint32_t kMagic = 0x504D5446;  // "FTMP"

  std::uint32_t magic = kMagic;
  Mode mode = Mode::kTiled;
  std::uint8_t type = 0;
  std::uint8_t rank = 0;
  std::uint8_t interleave = 0;
  std::uint64_t address = 0;
  std::array<std::uint32_t, kTensorRankMax> dimensions{};  // Less one.
  std::uint8_t swizzle = 0;
  std::uint8_t promotion = 0;
  std::uint8_t fill = 0;
  std::uint8_t wide_mode = 0;
  std::array<std::uint64_t, kTensorRankMax - 1> strides{};  // Bytes.
  std::array<std::uint16_t, kTensorRankMax> box{};          // Tiled.
  std::array<std::uint8_t, kTensorRankMax> element_strides{};
  std::uint8_t reserved = 0;
  std::array<std::int16_t, 3> lower{};  // Im2col.
  std::array<std::int16_t, 3> upper{};
  std::uint16_t channels = 0;
  std::uint16_t pixels = 0;
  std::array<std::uint32_t, 6> padding{};
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace flyt::ptx
