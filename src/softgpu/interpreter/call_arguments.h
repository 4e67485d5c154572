// What a system call of one lane is given, what it gives back, and what its pointers lead to.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/warp.h"

namespace flyt::ptx {

inline constexpr std::size_t kStringBytesMax = 64u << 10;  // Of a text in the device's memory.

// What one lane's pointers lead to. After a fault everything is zero or empty.
class LaneMemory {
 public:
  LaneMemory(Warp& warp, unsigned lane) : warp_(warp), lane_(lane) {}

  template <class T>
  T value(std::uint64_t address) {
    T result{};
    Access<Space::kGeneric> access(warp_, sizeof(T), false);
    const std::byte* place = ok_ ? access.at(lane_, address) : nullptr;
    ok_ = place != nullptr;
    if (ok_) std::memcpy(&result, place, sizeof(T));
    return result;
  }

  template <class T>
  void put(std::uint64_t address, const T& value) {
    Access<Space::kGeneric> access(warp_, sizeof(T), true);
    std::byte* place = ok_ ? access.at(lane_, address) : nullptr;
    ok_ = place != nullptr;
    if (ok_) std::memcpy(place, &value, sizeof(T));
  }

  std::string text(std::uint64_t address) {
    std::string result;
    while (ok_ && result.size() < kStringBytesMax) {
      const char c = value<char>(address++);
      if (c == '\0') break;
      result += c;
    }
    return result;
  }
  bool ok() const { return ok_; }

 private:
  Warp& warp_;
  const unsigned lane_;
  bool ok_ = true;
};

// The arguments of a system call, in the frame behind the caller's.
class CallArguments {
 public:
  CallArguments(Warp& warp, const CallSite& site, unsigned lane)
      : warp_(warp), site_(site), lane_(lane) {}

  std::uint64_t at(std::size_t index) const { return part<std::uint64_t>(index, 0); }
  // What stands at `offset` of an argument that is a structure; zero where it is shorter.
  template <class T>
  T part(std::size_t index, std::size_t offset) const {
    T value{};
    if (index >= site_.arguments.size() || site_.arguments[index].size <= offset) return value;
    const Argument& argument = site_.arguments[index];
    const std::size_t size = std::min<std::size_t>(argument.size - offset, sizeof(T));
    const std::byte* place =
        warp_.local(lane_, warp_.frame().stack + argument.remote + offset, size);
    if (place != nullptr) std::memcpy(&value, place, size);
    return value;
  }
  void give(std::uint64_t value) const {
    if (site_.returns.empty()) return;
    const Argument& argument = site_.returns[0];
    const std::size_t size = std::min<std::size_t>(argument.size, 8);
    std::byte* place = warp_.local(lane_, warp_.frame().stack + argument.remote, size);
    if (place != nullptr) std::memcpy(place, &value, size);
  }

 private:
  Warp& warp_;
  const CallSite& site_;
  const unsigned lane_;
};

}  // namespace flyt::ptx
