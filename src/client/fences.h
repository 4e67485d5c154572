// Fences: learning from the GPU itself that work is done.
//
// In a session whose two sides share memory the client posts, behind the work, the write of a word
// that both sides and the GPU know, and looks at the word for a short while. Nobody else is woken,
// and a wait costs what it costs natively. What takes longer, and whatever could be wrong, is asked
// of the server as over any other transport: a fence only ever says "done", never "failed".
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "client/context.h"
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
  ~Fences();
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  // True: all that was in the stream is done, and the server has nothing to tell about it. False:
  // nothing is known. `context` is the stream's and the calling thread's current one.
  bool done(ContextState& context, CUstream stream) EXCLUDES(mutex_);

  // Shared memory for a small result that the GPU writes and the program then copies.
  class Result {
   public:
    Result(Result&& other) noexcept
        : slot_(std::exchange(other.slot_, nullptr)), address_(other.address_) {}
    Result& operator=(Result&&) = delete;
    ~Result() {
      if (slot_ != nullptr) slot_->store(false, std::memory_order_release);
    }
    std::uint64_t address() const { return address_; }
    // The GPU may still write there: nobody else ever gets it.
    void give_up() { slot_ = nullptr; }

   private:
    friend class Fences;
    Result(std::atomic<bool>* slot, std::uint64_t address) : slot_(slot), address_(address) {}
    std::atomic<bool>* slot_;
    std::uint64_t address_ = 0;
  };
  // None where there are no fences, or all are in use.
  std::optional<Result> result(ContextState& context, std::uint64_t bytes) EXCLUDES(mutex_);

  void on_context_destroyed(std::uint64_t context) EXCLUDES(mutex_);

 private:
  struct Area;
  Area* area_of(ContextState& context) EXCLUDES(mutex_);
  bool usable() const;

  Session& session_;
  const Duration patience_;
  std::atomic<std::uint64_t> last_{0};
  Mutex mutex_;
  // By context handle; null where the server could not share it. Areas are never unmapped, because
  // some thread may still look at one whose context is gone; they serve another context then.
  std::map<std::uint64_t, Area*> areas_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Area>> all_ GUARDED_BY(mutex_);
  std::vector<Area*> spare_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
