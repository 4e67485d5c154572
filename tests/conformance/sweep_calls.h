// Every call of the driver that is not refused, as a table: what its parameters are, and a way to
// make it with arguments that are chosen while the program runs. From api/cuda, by
// codegen/emit_sweep.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "cuda/types.h"

namespace flyt::conformance {

enum class Kind { kInteger, kFloat, kEnum, kHandle, kCallback, kStruct, kPointer };

struct Parameter {
  Kind kind;
  std::string_view type;  // Of a pointer: what it points to at last.
  std::string_view name;
  int stars;
  bool is_const;
};

// A value of any type that a parameter may have.
struct Argument {
  alignas(8) std::array<std::byte, 64> bytes{};

  template <class T>
  static Argument of(T value) {
    static_assert(sizeof(T) <= sizeof(bytes));
    Argument made;
    std::memcpy(made.bytes.data(), &value, sizeof value);
    return made;
  }
  template <class T>
  T as() const {
    static_assert(sizeof(T) <= sizeof(bytes));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

using Invoke = CUresult (*)(void* function, const Argument* arguments);

struct SweptCall {
  const char* name;       // As exported.
  std::string_view base;  // Without _ptsz or _ptds.
  Invoke invoke;
  std::span<const Parameter> parameters;
};

// A member of a struct that has a value of its own.
struct Member {
  std::string_view of;
  std::string_view path;
  std::size_t offset;
  std::size_t bytes;
  Kind kind;
  std::string_view type;
};

std::span<const SweptCall> swept_calls();
std::vector<std::int64_t> values_of(std::string_view enum_name);
std::vector<Member> members_of(std::string_view struct_name);

}  // namespace flyt::conformance
