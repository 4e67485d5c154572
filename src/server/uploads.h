// Uploads: large data that clients send in pieces ahead of the command that uses it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"

namespace flyt::server {

// Takes memory only for what has arrived, whatever size was announced. Safe from any thread.
class Uploads {
 public:
  static constexpr std::uint64_t kBytesMax = 1 * kGiB;
  static constexpr std::uint64_t kBytesOfAllMax = 2 * kGiB;  // As announced.
  static constexpr std::size_t kCountMax = 4096;

  // Takes the next piece; false if it breaks a rule (order, sizes, totals).
  [[nodiscard]] bool add_piece(std::uint64_t upload, std::uint64_t total, std::uint64_t offset,
                               Bytes data) EXCLUDES(mutex_);
  // A complete upload, with a zero byte behind it (PTX is text), which is then forgotten.
  std::optional<std::vector<std::byte>> take(std::uint64_t upload) EXCLUDES(mutex_);

 private:
  struct Upload {
    std::uint64_t total = 0;
    std::vector<std::byte> bytes;  // What has arrived.
  };

  Mutex mutex_;
  std::map<std::uint64_t, Upload> uploads_ GUARDED_BY(mutex_);
  std::uint64_t bytes_of_all_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::server
