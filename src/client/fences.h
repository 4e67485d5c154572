// Fences: learning from the GPU itself that work is done.
//
// In a session whose two sides share memory the client posts, behind the work, the write of a word
// that both sides and the GPU know, and looks at the word for a short while. Nobody else is woken,
// and a wait costs what it costs natively. What takes longer, and whatever could be wrong, is asked
// of the server as over any other transport: a fence only ever says "done", never "failed".
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "client/context.h"
#include "client/shared_slots.h"
#include "cuda/types.h"

namespace flyt::client {

class Session;

// Safe from any thread.
class Fences {
 public:
  // Results of at most this size may come by a fence: one page.
  static constexpr std::uint64_t kResultBytesMax = 4096;

  // `patience`: how long a wait looks at its word; none: there are no fences.
  Fences(Session& session, Duration patience);
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  // True: all that was in the stream is done, and the server has nothing to tell about it. False:
  // nothing is known. `context` is the stream's and the calling thread's current one.
  bool done(ContextState& context, CUstream stream);

  // Shared memory for a small result that the GPU writes and the program then copies. None where
  // there are no fences, or all are in use.
  std::optional<SharedSlots::Slot> result(ContextState& context, std::uint64_t bytes);

  void on_context_destroyed(std::uint64_t context) { slots_.on_context_destroyed(context); }

 private:
  bool usable() const;

  Session& session_;
  const Duration patience_;
  std::atomic<std::uint64_t> last_{0};
  SharedSlots slots_;
};

}  // namespace flyt::client
