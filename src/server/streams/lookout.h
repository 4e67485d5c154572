// Lookout: what the GPU finishes reaches the client when nobody asks for it, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/workers.h"

namespace flyt::server {

// The main thread looks while it is awake and, for kPollTime after something new was expected,
// stays awake for it: no other thread is woken for what is soon done, nor gets in its way. What
// takes longer is left to a worker. Another one sees whether the main thread is held up.
class Lookout {
 public:
  static constexpr Duration kPollTime = std::chrono::microseconds(100);

  // Something to look after; safe from any thread.
  class Subject {
   public:
    virtual ~Subject() = default;
    // How many things the GPU has still to finish.
    virtual std::uint64_t pending() const = 0;
    // Tells the client what is finished. `Look::kSome`: the main thread has other things to do.
    enum class Look : std::uint8_t { kSome, kAll };
    virtual void look(Look look) = 0;
  };

  // `over`: the session has ended; safe from any thread.
  Lookout(Workers& workers, const Clock& clock, std::function<bool()> over)
      : workers_(workers), clock_(clock), over_(std::move(over)) {}
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  // Before anything is expected.
  void add(Subject& subject) { subjects_.push_back(&subject); }
  // Something is pending that was not. Main thread.
  void expect();
  // Main thread, once a turn, without Session::use(). True while it must not sleep.
  bool poll();
  bool expecting() const { return pending() != 0; }

 private:
  std::uint64_t pending() const;
  void look(Subject::Look look);
  void guard();
  void watch();
  // Ends a worker's work; false if there is some again that it has to go on with.
  bool done(std::atomic<bool>& working);

  Workers& workers_;
  const Clock& clock_;
  const std::function<bool()> over_;
  std::vector<Subject*> subjects_;
  Instant polled_until_;  // Main thread only.
  std::atomic<std::uint64_t> turns_{0};
  std::atomic<bool> guarding_{false};
  std::atomic<bool> watching_{false};
};

}  // namespace flyt::server
