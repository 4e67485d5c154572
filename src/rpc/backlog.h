// Backlog: bytes that wait until a connection takes them.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"

namespace flyt::rpc {

// Takes about as much memory as what waits: what has been sent goes, also where something always
// waits behind it. Belongs to one thread at a time.
class Backlog {
 public:
  bool empty() const { return bytes_.empty(); }
  // How many wait.
  std::size_t size() const { return bytes_.size() - sent_; }
  Bytes rest() const { return Bytes(bytes_).subspan(sent_); }
  // How many it holds, sent ones included.
  std::size_t held() const { return bytes_.size(); }

  void add(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // So many from the front of rest() have been sent.
  void sent(std::size_t size) {
    FLYT_ASSERT(size <= this->size());
    sent_ += size;
    const bool all = sent_ == bytes_.size();
    // Each byte is moved once at most, on average.
    if (!all && (sent_ < kSentMax || sent_ < this->size())) return;
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }

 private:
  static constexpr std::size_t kSentMax = 64 * kKiB;

  std::vector<std::byte> bytes_;
  std::size_t sent_ = 0;
};

}  // namespace flyt::rpc
