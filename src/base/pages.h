// Pages: zeroed memory of the system's, whole pages, given back at its end.
#pragma once

#include <cstdint>
#include <utility>

#include "base/bytes.h"

namespace flyt {

// Costs address space only until it is written. Belongs to one owner.
class Pages {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;

  // Empty where the system refuses.
  static Pages make(std::uint64_t bytes);
  Pages() = default;
  Pages(Pages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages();

  explicit operator bool() const { return !bytes_.empty(); }
  std::byte* data() const { return bytes_.data(); }

 private:
  explicit Pages(MutableBytes bytes) : bytes_(bytes) {}

  MutableBytes bytes_;
};

}  // namespace flyt
