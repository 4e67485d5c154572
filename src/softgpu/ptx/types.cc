#include "softgpu/ptx/types.h"

namespace flyt::ptx {

using namespace literals;

std::optional<TypeFacts> type_facts(std::string_view word) {
  using Kind = Register::Kind;
  switch (hash_of(word)) {
    case "pred"_n:
      return TypeFacts{Kind::kPredicate, 0};
    case "u8"_n:
      return TypeFacts{Kind::kInteger, 1};
    case "s8"_n:
      return TypeFacts{Kind::kInteger, 1, true};
    case "u16"_n:
      return TypeFacts{Kind::kInteger, 2};
    case "s16"_n:
      return TypeFacts{Kind::kInteger, 2, true};
    case "u32"_n:
      return TypeFacts{Kind::kInteger, 4};
    case "s32"_n:
      return TypeFacts{Kind::kInteger, 4, true};
    case "u64"_n:
      return TypeFacts{Kind::kInteger, 8};
    case "s64"_n:
      return TypeFacts{Kind::kInteger, 8, true};
    case "f16"_n:
      return TypeFacts{Kind::kFloat, 2};
    case "f32"_n:
      return TypeFacts{Kind::kFloat, 4};
    case "f64"_n:
      return TypeFacts{Kind::kFloat, 8};
    case "b8"_n:
      return TypeFacts{Kind::kUntyped, 1};
    case "b16"_n:
      return TypeFacts{Kind::kUntyped, 2};
    case "b32"_n:
      return TypeFacts{Kind::kUntyped, 4};
    case "b64"_n:
      return TypeFacts{Kind::kUntyped, 8};
    case "b128"_n:
      return TypeFacts{Kind::kUntyped, 16};
    case "f16x2"_n:
      return TypeFacts{Kind::kUntyped, 4};
    case "bf16"_n:
      return TypeFacts{Kind::kUntyped, 2};
    case "bf16x2"_n:
      return TypeFacts{Kind::kUntyped, 4};
  }
  return std::nullopt;
}

}  // namespace flyt::ptx
