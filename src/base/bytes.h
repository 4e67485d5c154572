// Reader and Writer: the only way from bytes to values and back. Little-endian, unaligned.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/assert.h"

namespace flyt {

static_assert(std::endian::native == std::endian::little, "Flyt runs on little-endian machines");

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;
inline constexpr std::size_t kGiB = 1024 * kMiB;

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Values that may cross as their own bytes.
template <class T>
concept Plain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>;

inline Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes bytes_at(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}
inline MutableBytes mutable_bytes_at(void* data, std::size_t size) {
  return {static_cast<std::byte*>(data), size};
}
// Between an address as CUDA spells it and a pointer.
inline void* pointer_at(std::uint64_t address) { return reinterpret_cast<void*>(address); }
inline std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

// Takes values off the front of a byte range. Once a read did not fit, every later one fails too
// and yields zeros, so callers check once, at the end. Not thread-safe.
class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {}

  template <Plain T>
  bool read(T& out) {
    if (!need(sizeof(T))) {
      std::memset(static_cast<void*>(&out), 0, sizeof(T));
      return false;
    }
    std::memcpy(static_cast<void*>(&out), rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return true;
  }

  template <Plain T>
  T take() {
    T value;
    read(value);
    return value;
  }

  // A view of the next `size` bytes; empty if they are not there.
  Bytes take_bytes(std::size_t size) {
    if (!need(size)) return {};
    const Bytes taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  // Marks the input as bad, as a read past its end would.
  void fail() { ok_ = false; }

  bool ok() const { return ok_; }
  std::size_t remaining() const { return ok_ ? rest_.size() : 0; }
  // Everything was read and nothing is left over.
  bool finished() const { return ok_ && rest_.empty(); }

 private:
  bool need(std::size_t size) {
    if (!ok_ || rest_.size() < size) ok_ = false;
    return ok_;
  }

  Bytes rest_;
  bool ok_ = true;
};

// Puts values into a byte range whose size the caller has computed; running over it is a bug.
// Not thread-safe.
class Writer {
 public:
  explicit Writer(MutableBytes space) : space_(space) {}

  template <Plain T>
  void write(const T& value) {
    FLYT_ASSERT(remaining() >= sizeof(T));
    std::memcpy(space_.data() + used_, &value, sizeof(T));
    used_ += sizeof(T);
  }

  void write_bytes(Bytes bytes) {
    FLYT_ASSERT(remaining() >= bytes.size());
    if (!bytes.empty()) std::memcpy(space_.data() + used_, bytes.data(), bytes.size());
    used_ += bytes.size();
  }

  // Space for `size` bytes that the caller fills in itself.
  MutableBytes skip(std::size_t size) {
    FLYT_ASSERT(remaining() >= size);
    const MutableBytes taken = space_.subspan(used_, size);
    used_ += size;
    return taken;
  }

  std::size_t used() const { return used_; }
  std::size_t remaining() const { return space_.size() - used_; }

 private:
  MutableBytes space_;
  std::size_t used_ = 0;
};

}  // namespace flyt
