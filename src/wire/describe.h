// Describe: a command as text, for traces.
#pragma once

#include <charconv>
#include <string>
#include <type_traits>

#include "wire/fields.h"

namespace flyt::wire {

namespace internal {

struct Describe {
  std::string& out;
  bool first = true;

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> || Handle<T>
  void operator()(const char* name, const T& value) {
    label(name);
    put(value);
  }
  template <class T>
  requires std::is_class_v<T> || std::is_union_v<T>
  void operator()(const char* name, const T&) {
    label(name);
    counted(sizeof(T), " bytes");
  }
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) {
    label(name);
    value ? counted(sizeof(T), " bytes") : void(out += "none");
  }
  void operator()(const char* name, std::string_view value, std::uint32_t) {
    label(name);
    out += '"';
    for (const char letter : value) out += letter >= ' ' && letter <= '~' ? letter : '?';
    out += '"';
  }
  void operator()(const char* name, Bytes value, std::uint32_t) {
    label(name);
    counted(value.size(), " bytes");
  }
  template <class T>
  void operator()(const char* name, const List<T>& value, std::uint32_t) {
    label(name);
    counted(value.size(), " values");
  }

  void label(const char* name) {
    if (!first) out += ", ";
    first = false;
    out += name;
    out += '=';
  }
  void counted(std::size_t count, const char* unit) {
    out += std::to_string(count);
    out += unit;
  }
  template <class T>
  void put(const T& value) {
    if constexpr (Handle<T>) {
      char text[16];
      const auto end = std::to_chars(text, text + sizeof(text), address_of(value), 16);
      out += "0x";
      out.append(text, end.ptr);
    } else if constexpr (std::is_enum_v<T>) {
      out += std::to_string(static_cast<std::underlying_type_t<T>>(value));
    } else {
      out += std::to_string(value);
    }
  }
};

}  // namespace internal

// For example cuEventQuery(hEvent=0x7f0010); says so where the payload is not a T.
template <class T>
std::string describe(Bytes payload) {
  std::string out(T::kName);
  T command;
  if (!decode(payload, command)) return out + "(malformed)";
  out += '(';
  internal::Describe visitor{out};
  T::each(command, visitor);
  return out + ')';
}

}  // namespace flyt::wire
