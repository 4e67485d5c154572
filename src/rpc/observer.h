// CommandObserver: sees what the threads of a client send and wait for, for traces.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace flyt::rpc {

// Called by the thread that sends or has waited, which may be any: it must be quick, must not wait
// and must not use the channel.
class CommandObserver {
 public:
  virtual ~CommandObserver() = default;
  // A command of `bytes`, header included, is sent; `held`: how long credits and room took to get.
  virtual void on_command(std::uint16_t op, std::uint64_t sequence, std::size_t bytes,
                          Duration held) = 0;
  // Its answer of `bytes` was waited for, from when it was handed over; 0: what it has the GPU
  // tell.
  virtual void on_answer(std::uint16_t op, std::size_t bytes, Duration waited) = 0;
  // The command that this thread posts next names so many bytes that a lane has sent.
  virtual void on_lane(std::uint64_t /*bytes*/) {}
  // A command of this thread is going to ask for so many bytes of data.
  virtual void on_expected(std::uint64_t bytes) = 0;
};

}  // namespace flyt::rpc
