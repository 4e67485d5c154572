// Fields: how the values of a command or a reply become bytes, and values again.
//
// A message is a struct with `each(self, visit)`, which shows its members in their order to
// visit(name, member) or, where a member's length varies, visit(name, member, limit). Encodings
// have no padding: fixed types are their own little-endian bytes (a handle is 64 bits wide); an
// optional is a byte 0 or 1 and then the value if 1; text, bytes and lists are a 32-bit length
// (of a list: its elements) and the contents. docs/api-format.md has the table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/bytes.h"

namespace flyt::wire {

// Some values of one type in a row. It looks at bytes that somebody else keeps: at the sender the
// caller's array, at the receiver the frame, where the values need not be aligned.
template <Plain T>
class List {
 public:
  List() = default;
  explicit List(std::span<const T> values) : bytes_(bytes_at(values.data(), values.size_bytes())) {}
  explicit List(const std::vector<T>& values) : List(std::span<const T>(values)) {}
  // `bytes` holds whole values.
  static List from_bytes(Bytes bytes) {
    FLYT_ASSERT(bytes.size() % sizeof(T) == 0);
    List list;
    list.bytes_ = bytes;
    return list;
  }

  std::size_t size() const { return bytes_.size() / sizeof(T); }
  bool empty() const { return bytes_.empty(); }
  Bytes bytes() const { return bytes_; }

  T operator[](std::size_t index) const {
    FLYT_ASSERT(index < size());
    T value;
    std::memcpy(static_cast<void*>(&value), bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }

  // Copies as many values as both sides have room for.
  void copy_to(std::span<T> out) const {
    const std::size_t count = std::min(out.size_bytes(), bytes_.size());
    if (count != 0) std::memcpy(static_cast<void*>(out.data()), bytes_.data(), count);
  }

  std::vector<T> to_vector() const {
    std::vector<T> values(size());
    copy_to(values);
    return values;
  }

 private:
  Bytes bytes_;
};

template <class T>
concept Message = requires(T& message) {
  T::each(message, [](auto&&...) {});
};

namespace internal {

// A handle or an address that the client chose: 64 bits, whatever type it has in C.
template <class T>
concept Handle = std::is_pointer_v<T>;

struct Measure {
  std::size_t bytes = 0;

  template <class T>
  requires Plain<T> || Handle<T>
  void operator()(const char*, const T&) { bytes += sizeof(T); }
  template <class T>
  void operator()(const char*, const std::optional<T>& value) {
    bytes += 1 + (value ? sizeof(T) : 0);
  }
  void operator()(const char*, std::string_view value, std::uint32_t) { bytes += 4 + value.size(); }
  void operator()(const char*, Bytes value, std::uint32_t) { bytes += 4 + value.size(); }
  template <class T>
  void operator()(const char*, const List<T>& value, std::uint32_t) {
    bytes += 4 + value.bytes().size();
  }
};

struct Encode {
  Writer& writer;

  template <Plain T>
  void operator()(const char*, const T& value) {
    writer.write(value);
  }
  template <Handle T>
  void operator()(const char*, const T& value) {
    writer.write(address_of(value));
  }
  template <class T>
  void operator()(const char*, const std::optional<T>& value) {
    writer.write(static_cast<std::uint8_t>(value.has_value()));
    if (value) writer.write(*value);
  }
  void operator()(const char*, std::string_view value, std::uint32_t limit) {
    variable(value.size(), bytes_of(value), limit);
  }
  void operator()(const char*, Bytes value, std::uint32_t limit) {
    variable(value.size(), value, limit);
  }
  template <class T>
  void operator()(const char*, const List<T>& value, std::uint32_t limit) {
    variable(value.size(), value.bytes(), limit);
  }

  void variable(std::size_t count, Bytes contents, std::uint32_t limit) {
    FLYT_ASSERT(count <= limit);
    writer.write(static_cast<std::uint32_t>(count));
    writer.write_bytes(contents);
  }
};

struct Decode {
  Reader& reader;

  template <Plain T>
  void operator()(const char*, T& value) {
    reader.read(value);
  }
  void operator()(const char*, bool& value) { value = flag(); }
  template <Handle T>
  void operator()(const char*, T& value) {
    value = static_cast<T>(pointer_at(reader.take<std::uint64_t>()));
  }
  template <class T>
  void operator()(const char*, std::optional<T>& value) {
    value.reset();
    if (flag()) reader.read(value.emplace());
  }
  void operator()(const char*, std::string_view& value, std::uint32_t limit) {
    value = text_of(contents(1, limit));
  }
  void operator()(const char*, Bytes& value, std::uint32_t limit) { value = contents(1, limit); }
  template <class T>
  void operator()(const char*, List<T>& value, std::uint32_t limit) {
    value = List<T>::from_bytes(contents(sizeof(T), limit));
  }

  bool flag() {
    const std::uint8_t value = reader.take<std::uint8_t>();
    if (value > 1) reader.fail();
    return value == 1;
  }
  Bytes contents(std::size_t element_bytes, std::uint32_t limit) {
    const std::uint32_t count = reader.take<std::uint32_t>();
    if (count > limit) reader.fail();
    return reader.ok() ? reader.take_bytes(count * element_bytes) : Bytes{};
  }
};

}  // namespace internal

// The bytes that encode() will write.
template <Message T>
std::size_t encoded_size(const T& message) {
  internal::Measure measure;
  T::each(message, measure);
  return measure.bytes;
}

// The caller has checked the limits of varying members; the writer has room.
template <Message T>
void encode(Writer& writer, const T& message) {
  internal::Encode visitor{writer};
  T::each(message, visitor);
}

// False if the bytes are not exactly one T: too short, too long, or over a limit. Text, bytes and
// lists of `message` look into `bytes`.
template <Message T>
[[nodiscard]] bool decode(Bytes bytes, T& message) {
  Reader reader(bytes);
  internal::Decode visitor{reader};
  T::each(message, visitor);
  return reader.finished();
}

}  // namespace flyt::wire
