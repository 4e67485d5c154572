// SharedEvent: how far an event is that several processes use: two counters in a file in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/pages.h"
#include "cuda/types.h"

namespace flyt::softgpu {

// Safe from any thread and process.
class SharedEvent {
 public:
  // Null where the system refuses.
  static std::shared_ptr<SharedEvent> make();
  // The one behind a handle that a living process of this user gave out; null for any other.
  static std::shared_ptr<SharedEvent> open(const CUipcEventHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  CUipcEventHandle handle() const;

  // A record begins: its number.
  std::uint64_t begin() { return counters_->begun.fetch_add(1) + 1; }
  // A stream has come to it.
  void complete(std::uint64_t number);
  // The last record of all.
  std::uint64_t last() const { return counters_->begun.load(); }
  bool reached(std::uint64_t number) const { return counters_->done.load() >= number; }

 private:
  struct Counters {
    std::uint64_t magic;
    std::uint64_t secret[2];  // What a handle must know.
    std::atomic<std::uint64_t> begun;
    std::atomic<std::uint64_t> done;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  SharedEvent(Fd file, Counters* counters) : file_(std::move(file)), counters_(counters) {}
  static std::shared_ptr<SharedEvent> map(Fd file);

  const Fd file_;
  Counters* const counters_;
};

class Fate;

// Waits until a record is reached, or the context that waits is at its end.
void await(const SharedEvent& event, std::uint64_t number, const Fate& fate);

}  // namespace flyt::softgpu
