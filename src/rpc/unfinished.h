// Unfinished: copies of the newest commands of a client, for doing again what a lost server had not
// done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "wire/frame.h"

namespace flyt::rpc {

// A bounded number of commands and bytes: older ones give way. Safe from any thread.
class Unfinished {
 public:
  static constexpr std::size_t kCommandsMax = 1 << 16;
  static constexpr std::size_t kBytesMax = 128 * kMiB;

  struct Command {
    wire::CommandHeader header;
    std::vector<std::byte> payload;
  };

  // In the order of their sequence numbers.
  void add(const wire::CommandHeader& header, Bytes fields, std::span<const Bytes> data)
      EXCLUDES(mutex_);
  // All commands behind that number; nothing if some of them are gone.
  std::optional<std::vector<Command>> behind(std::uint64_t sequence) const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::deque<Command> commands_ GUARDED_BY(mutex_);
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t last_dropped_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::rpc
