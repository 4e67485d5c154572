// EndedStreams: work of streams that the client has ended, which the driver goes on with all the
// same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/types.h"
#include "driver/table.h"
#include "server/streams/event_pool.h"

namespace flyt::server {

// Main thread.
class EndedStreams {
 public:
  EndedStreams(const driver::Table& driver, EventPool& events) : driver_(driver), events_(events) {}

  // Before the stream ends, with the context current that it is of.
  void note(std::uint32_t context, CUstream stream);
  // Whether none of them has work any more.
  bool all_done();

 private:
  // They are looked through when there are that many.
  static constexpr std::size_t kLooked = 64;
  void drop_passed();

  const driver::Table& driver_;
  EventPool& events_;
  std::vector<std::shared_ptr<Fence>> ends_;
  bool unknown_ = false;  // The end of some of it nobody can tell.
};

}  // namespace flyt::server
