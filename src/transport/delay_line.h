// DelayLine: bytes that are let out a fixed time after they came in, in their order.
#pragma once

#include <deque>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace flyt::transport {

// A pure state machine: the caller says what time it is. Belongs to one thread.
class DelayLine {
 public:
  // Bytes on their way, beyond which has_room() says no: 64 MiB let 6.4 GB/s through at 10 ms.
  static constexpr std::size_t kBytesMax = 64 * kMiB;

  explicit DelayLine(Duration delay) : delay_(delay) {}

  bool has_room() const { return bytes_ < kBytesMax && !ended_; }
  void push(Bytes data, Instant now);
  // Nothing more comes in; the end itself takes as long as the bytes do.
  void end(Instant now);

  // When the next bytes, or the end, are due; far in the future if there is nothing.
  Instant next_due() const;
  // What may leave at once: not empty only if it is due. take() removes it from the front.
  Bytes due(Instant now) const;
  void take(std::size_t size);
  // The end is due and everything before it was taken.
  bool over(Instant now) const { return ended_ && parts_.empty() && now >= end_due_; }

 private:
  struct Part {
    Instant due;
    std::vector<std::byte> bytes;
  };

  const Duration delay_;
  std::deque<Part> parts_;
  std::size_t taken_ = 0;  // Of the first part.
  std::size_t bytes_ = 0;
  bool ended_ = false;
  Instant end_due_{INT64_MAX};
};

}  // namespace flyt::transport
