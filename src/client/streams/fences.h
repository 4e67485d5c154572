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
#include <vector>

#include "base/clock.h"
#include "client/context.h"
#include "client/transfers/shared_slots.h"
#include "cuda/types.h"

namespace flyt::client {

class Session;

// The fence behind the last record of an event. Safe from any thread; of records that threads make
// at the same time it is one or the other.
class RecordFence {
 public:
  // `record`: its number, from 1; `fence` of Fences::mark(), not 0; `revelations`: of Watches, from
  // before the record.
  void set(std::uint64_t record, std::uint64_t fence, std::uint64_t revelations) {
    record_ = 0;
    unfinished_at_ns_ = 0;
    revelations_ = revelations;
    fence_ = fence;
    record_ = record;
  }
  // The fence behind that record; 0: there is none.
  std::uint64_t of(std::uint64_t record) const {
    if (record_ != record) return 0;
    const std::uint64_t fence = fence_;
    return record_ == record ? fence : 0;
  }
  std::uint64_t revelations() const { return revelations_; }
  // How long ago it was first found unfinished.
  Duration unfinished_for(Instant now) {
    std::int64_t first = 0;
    if (unfinished_at_ns_.compare_exchange_strong(first, now.ns)) first = now.ns;
    return Duration(now.ns - first);
  }
  void reset() { record_ = fence_ = 0; }

 private:
  std::atomic<std::uint64_t> record_{0};
  std::atomic<std::uint64_t> fence_{0};
  std::atomic<std::uint64_t> revelations_{0};
  std::atomic<std::int64_t> unfinished_at_ns_{0};
};

// Safe from any thread.
class Fences {
 public:
  // Results of at most this size may come by a fence: one page.
  static constexpr std::uint64_t kResultBytesMax = 4096;

  // `patience`: how long a wait looks at its word; none: there are no fences.
  Fences(Session& session, Duration patience);
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  // Posts a fence behind what is in the stream; 0 where there are none. `context` is the stream's
  // and the calling thread's current one.
  std::uint64_t mark(ContextState& context, CUstream stream);
  // What a fence says of itself. Fences are many and words are few: a later fence may have taken
  // its word.
  enum class State : std::uint8_t { kDone, kNotYet, kUnknown };
  State look(ContextState& context, std::uint64_t fence);
  // True once it is done; false: nothing is known, also after looking for a while.
  bool wait(ContextState& context, std::uint64_t fence);

  // All that was in the stream is done, and the server has nothing to tell about it: a moment ago,
  // as the clock was then. None: nothing is known. `context` is the stream's and the calling
  // thread's current one.
  std::optional<Instant> done(ContextState& context, CUstream stream);
  // The same for all streams of the context, which is no green one.
  bool all_done(ContextState& context);

  // Shared memory for a small result that the GPU writes and the program then copies. None where
  // there are no fences, or all are in use.
  std::optional<SharedSlots::Slot> result(ContextState& context, std::uint64_t bytes);

  std::vector<SharedSlots::Shared> shared_areas() { return slots_.shared(); }
  void on_context_destroyed(std::uint64_t context) { slots_.on_context_destroyed(context); }

 private:
  bool usable() const;
  // Looks at the fence's word until the deadline. The clock's last reading once it is done.
  std::optional<Instant> look_until(ContextState& context, std::uint64_t fence, Instant now,
                                    Instant deadline);
  // As wait().
  std::optional<Instant> wait_for(ContextState& context, std::uint64_t fence);
  Instant deadline(Instant now) const;
  void note_wait(Instant since);
  // It was not seen done; the server is asked next.
  void note_vain_wait(Instant since);
  const std::atomic<std::uint64_t>* word_of(ContextState& context, std::uint64_t fence);

  Session& session_;
  const Duration patience_;
  std::atomic<std::uint64_t> last_{0};
  SharedSlots slots_;
};

}  // namespace flyt::client
