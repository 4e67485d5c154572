// CountedBytes: what something takes of a limit that several share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace flyt {

// Given back at its end, on any thread. Belongs to one owner.
class CountedBytes {
 public:
  using Total = std::shared_ptr<std::atomic<std::uint64_t>>;

  CountedBytes() = default;
  CountedBytes(CountedBytes&& other) noexcept
      : total_(std::move(other.total_)), bytes_(std::exchange(other.bytes_, 0)) {}
  CountedBytes& operator=(CountedBytes&& other) noexcept {
    std::swap(total_, other.total_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CountedBytes() {
    if (bytes_ != 0) total_->fetch_sub(bytes_);
  }

  // In place of what it was before. False, and nothing is taken: all together would be more than
  // `most`.
  [[nodiscard]] bool take(const Total& total, std::uint64_t bytes, std::uint64_t most) {
    *this = CountedBytes();
    std::uint64_t before = total->load();
    do {
      if (before > most || bytes > most - before) return false;
    } while (!total->compare_exchange_weak(before, before + bytes));
    total_ = total;
    bytes_ = bytes;
    return true;
  }

 private:
  Total total_;
  std::uint64_t bytes_ = 0;
};

}  // namespace flyt
