// The fundamental types of PTX: sizes and register kinds by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "softgpu/ptx/code.h"

namespace flyt::ptx {

struct TypeFacts {
  Register::Kind kind = Register::Kind::kUntyped;
  std::uint8_t bytes = 0;  // 0: predicate.
  bool is_signed = false;
};

// "u32" -> {integer, 4}; nothing for what is no type. Packed types count as untyped.
std::optional<TypeFacts> type_facts(std::string_view word);

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t align) {
  return align == 0 ? value : (value + align - 1) / align * align;
}

}  // namespace flyt::ptx
