// Ledger: what was posted and what the server has acknowledged: the credits of a session.
#pragma once

#include <atomic>
#include <cstdint>

#include "wire/hello.h"

namespace flyt::rpc {

// Posted counts are written under the post lock, acknowledged ones by the reader; both are read by
// anybody. Separate cache lines: posting must not wait for the reader's.
struct Ledger {
  explicit Ledger(const wire::Limits& both) : limits(both) {}

  // One more command of `frame_bytes` may be sent.
  bool covers(std::uint64_t sequence, std::uint64_t frame_bytes) const {
    return sequence - acked_sequence.load(std::memory_order_acquire) <= limits.commands_in_flight &&
           posted_bytes.load(std::memory_order_relaxed) + frame_bytes -
                   acked_bytes.load(std::memory_order_acquire) <=
               limits.bytes_in_flight;
  }

  const wire::Limits limits;
  alignas(64) std::atomic<std::uint64_t> posted_sequence{0};
  std::atomic<std::uint64_t> posted_bytes{0};
  std::atomic<std::uint64_t> missed_sequence{0};  // Channel::newest_missed().
  alignas(64) std::atomic<std::uint64_t> acked_sequence{0};
  std::atomic<std::uint64_t> acked_bytes{0};
};

}  // namespace flyt::rpc
