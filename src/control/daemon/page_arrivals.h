// PageArrivals: connections of browsers that have not asked yet. One thread hears all of them, so
// that who says nothing, or little at a time, holds up nobody.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/transport.h"

namespace flyt::control {

struct PageArrival {
  std::unique_ptr<transport::Connection> connection;
  // In the clear what it has said: a whole head, or as much as is more than a head may be.
  std::string said;
};

// Belongs to one thread.
class PageArrivals {
 public:
  static constexpr std::size_t kMost = 64;

  // Who asks in the clear must have said all of a head, and others anything, within `patience`.
  PageArrivals(bool in_the_clear, Duration patience)
      : in_the_clear_(in_the_clear), patience_(patience) {}

  // Where there are kMost, who has been here for longest goes for the newcomer.
  void add(std::unique_ptr<transport::Connection> connection, Instant now);

  struct Turn {
    bool at_door = false;  // Somebody is at the listener.
    std::vector<PageArrival> ready;
  };
  // Sleeps until there is something of either, `until`, or `wakeup` is signalled. `listener`: -1 is
  // none.
  Turn wait(int listener, const transport::Wakeup& wakeup, Instant until);

 private:
  struct One {
    PageArrival arrival;
    Instant deadline;
  };
  using Ones = std::list<One>;

  // What it says now. kReady: it has asked; kGone: it has hung up.
  enum class Said : std::uint8_t { kLittle, kReady, kGone };
  Said hear(One& one) const;

  const bool in_the_clear_;
  const Duration patience_;
  Ones ones_;  // In the order in which they came.
};

}  // namespace flyt::control
