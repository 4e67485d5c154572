// Waiting for a stream.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "cuda/types.h"

namespace flyt::client {

class Session;

// Waits until everything in the stream up to now is done. For the calling thread's current context.
CUresult synchronize(Session& session, CUstream stream);
// The same without a look at what the GPU itself may tell.
CUresult synchronize_by_reply(Session& session, CUstream stream);

// Libraries wait for a stream right after a copy that has waited already. A thread that has just
// seen its stream done, and after whose wait nobody sent anything, has nothing to ask.
//
//   const StreamSeenDone seen(session, stream);  // before the one command that waits
//   ...
//   seen.note();                                 // after its success
class StreamSeenDone {
 public:
  StreamSeenDone(Session& session, CUstream stream);
  // `at`: when it was done, or a moment before.
  void note(Instant at = system_clock().now()) const;

  // Whether the calling thread has seen it so within the last microseconds.
  static bool still(Session& session, CUstream stream);

 private:
  Session& session_;
  const CUstream stream_;
  const std::uint64_t before_;
};

}  // namespace flyt::client
