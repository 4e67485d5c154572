// Attempts: when to try again what has failed and may work later.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flyt::client {

// After failures in a row the next 1, 2, 4, ... wishes are not worth a try, but at most kApartMax.
// No locks of its own.
class Attempts {
 public:
  static constexpr std::uint32_t kApartMax = 1024;

  // Whether this wish is worth a try.
  bool due() {
    if (left_out_ == 0) return true;
    --left_out_;
    return false;
  }
  void failed() {
    left_out_ = apart_;
    apart_ = std::min(2 * apart_, kApartMax);
  }

 private:
  std::uint32_t apart_ = 1;
  std::uint32_t left_out_ = 0;
};

}  // namespace flyt::client
