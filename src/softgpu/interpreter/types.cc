#include "softgpu/interpreter/types.h"

namespace flyt::ptx {

using namespace literals;

std::optional<Type> type_named(std::uint32_t hash) {
  switch (hash) {
    case "u8"_n:
      return Type::kU8;
    case "u16"_n:
      return Type::kU16;
    case "u32"_n:
      return Type::kU32;
    case "u64"_n:
      return Type::kU64;
    case "s8"_n:
      return Type::kS8;
    case "s16"_n:
      return Type::kS16;
    case "s32"_n:
      return Type::kS32;
    case "s64"_n:
      return Type::kS64;
    case "b8"_n:
      return Type::kB8;
    case "b16"_n:
      return Type::kB16;
    case "b32"_n:
      return Type::kB32;
    case "b64"_n:
      return Type::kB64;
    case "b128"_n:
      return Type::kB128;
    case "f16"_n:
      return Type::kF16;
    case "bf16"_n:
      return Type::kBF16;
    case "f32"_n:
      return Type::kF32;
    case "f64"_n:
      return Type::kF64;
    case "f16x2"_n:
      return Type::kF16x2;
    case "bf16x2"_n:
      return Type::kBF16x2;
    case "u16x2"_n:
      return Type::kU16x2;
    case "s16x2"_n:
      return Type::kS16x2;
    case "tf32"_n:
      return Type::kTF32;
    case "e4m3x2"_n:
      return Type::kE4M3x2;
    case "e5m2x2"_n:
      return Type::kE5M2x2;
    case "e2m1x2"_n:
      return Type::kE2M1x2;
    case "e2m3x2"_n:
      return Type::kE2M3x2;
    case "e3m2x2"_n:
      return Type::kE3M2x2;
    case "ue8m0x2"_n:
      return Type::kUE8M0x2;
    case "pred"_n:
      return Type::kPred;
  }
  return std::nullopt;
}

unsigned type_bytes(Type type) {
  switch (type) {
    case Type::kPred:
      return 0;
    case Type::kU8:
    case Type::kS8:
    case Type::kB8:
    case Type::kE2M1x2:
      return 1;
    case Type::kU16:
    case Type::kS16:
    case Type::kB16:
    case Type::kF16:
    case Type::kBF16:
    case Type::kE4M3x2:
    case Type::kE5M2x2:
    case Type::kE2M3x2:
    case Type::kE3M2x2:
    case Type::kUE8M0x2:
      return 2;
    case Type::kU32:
    case Type::kS32:
    case Type::kB32:
    case Type::kF32:
    case Type::kTF32:
    case Type::kF16x2:
    case Type::kBF16x2:
    case Type::kU16x2:
    case Type::kS16x2:
      return 4;
    case Type::kU64:
    case Type::kS64:
    case Type::kB64:
    case Type::kF64:
      return 8;
    case Type::kB128:
      return 16;
  }
  return 0;
}

bool is_signed(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

bool is_floating(Type type) {
  return type == Type::kF16 || type == Type::kBF16 || type == Type::kF32 || type == Type::kF64;
}

}  // namespace flyt::ptx
