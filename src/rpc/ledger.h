// Ledger: what was posted and what the server has acknowledged: the credits of a session.
#pragma once

#include <atomic>
#include <cstdint>

#include "wire/hello.h"

namespace flyt::rpc {

// Posted counts are written under the post lock, acknowledged ones by the reader; both are read by
// anybody. Separate cache lines: posting must not wait for the reader's.
struct Ledger {
  // What only users of KeptCredits may use of the limits.
  static constexpr unsigned kKeptPart = 8;

  explicit Ledger(const wire::Limits& both) : limits(both) {}

  // One more command of `frame_bytes` may be sent; `kept`: with the kept credits, too.
  bool covers(std::uint64_t sequence, std::uint64_t frame_bytes, bool kept) const {
    const std::uint64_t commands = limits.commands_in_flight;
    const std::uint64_t bytes = limits.bytes_in_flight;
    return sequence - acked_sequence.load(std::memory_order_acquire) <=
               commands - (kept ? 0 : commands / kKeptPart) &&
           posted_bytes.load(std::memory_order_relaxed) + frame_bytes -
                   acked_bytes.load(std::memory_order_acquire) <=
               bytes - (kept ? 0 : bytes / kKeptPart);
  }

  const wire::Limits limits;
  alignas(64) std::atomic<std::uint64_t> posted_sequence{0};
  std::atomic<std::uint64_t> posted_bytes{0};
  std::atomic<std::uint64_t> missed_sequence{0};  // Channel::newest_missed().
  alignas(64) std::atomic<std::uint64_t> acked_sequence{0};
  std::atomic<std::uint64_t> acked_bytes{0};
};

}  // namespace flyt::rpc
