// Uploads: large data that clients send in pieces ahead of the command that uses it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/sha256.h"

namespace flyt::server {

// What a client says of an upload before it sends any of it.
struct UploadFacts {
  std::uint64_t total = 0;       // Bytes of the code itself.
  std::uint64_t packed = 0;      // Bytes that are sent for it, as a zstd frame; 0: the code itself.
  std::optional<Digest> digest;  // SHA-256 of the code, if it may be stored already.
};

// Takes memory only for what has arrived, whatever size was announced: of addresses,
// kReservedAtOnce at first and twice what has arrived then. Safe from any thread.
class Uploads {
 public:
  static constexpr std::uint64_t kBytesMax = 1 * kGiB;
  static constexpr std::uint64_t kBytesOfAllMax = 2 * kGiB;  // As announced.
  static constexpr std::size_t kCountMax = 4096;
  static constexpr std::size_t kReservedAtOnce = 32 * kMiB;

  // Announces an upload, or announces it anew before its first piece; false if that breaks a rule.
  [[nodiscard]] bool describe(std::uint64_t upload, const UploadFacts& facts) EXCLUDES(mutex_);
  // Takes the next piece; false if it breaks a rule (order, sizes, totals).
  [[nodiscard]] bool add_piece(std::uint64_t upload, std::uint64_t total, std::uint64_t offset,
                               Bytes data) EXCLUDES(mutex_);

  struct Taken {
    UploadFacts facts;
    std::vector<std::byte> bytes;  // What was sent, with a zero byte behind it (PTX is text).
    bool complete = false;         // Else nothing of it was sent, or not all.
  };
  // An upload, which is then forgotten; nothing if there is none.
  std::optional<Taken> take(std::uint64_t upload) EXCLUDES(mutex_);
  // Of an upload that was described and of which nothing has been sent, its facts. It stays.
  std::optional<UploadFacts> unsent(std::uint64_t upload) EXCLUDES(mutex_);

 private:
  struct Upload {
    UploadFacts facts;
    std::vector<std::byte> bytes;  // What has arrived.
    std::uint64_t sent_total() const { return facts.packed != 0 ? facts.packed : facts.total; }
    std::uint64_t announced() const { return facts.packed + facts.total; }
  };

  bool admit(std::uint64_t upload, const UploadFacts& facts) REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::uint64_t, Upload> uploads_ GUARDED_BY(mutex_);
  std::uint64_t bytes_of_all_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::server
