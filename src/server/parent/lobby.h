// Lobby: connections that have not said a whole hello yet, or that have and wait for a place, or
// for the end of the process that they had. They cost the server a socket each, and no process and
// no session; how many and how long is limited.
#pragma once

#include <poll.h>

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/transport.h"
#include "wire/hello.h"
#include "wire/token.h"

namespace flyt::server {

// Belongs to one thread.
class Lobby {
 public:
  static constexpr std::size_t kWaitingMax = 512;
  // Of one host, or of one process on this host.
  static constexpr std::size_t kWaitingOfOneMax = 64;
  // Of those who wait for a place; and of those who go on with a session one for each.
  static constexpr std::size_t kHeldMax = 64;
  // As long as a slow network may take to bring a few kilobytes.
  static constexpr Duration kWaitMax = std::chrono::seconds(10);

  explicit Lobby(const Clock& clock = system_clock()) : clock_(clock) {}

  // Takes a connection in. Yields one that has to go for it, to be refused: whoever has waited
  // longest, of its own peer's if that has too many here, or else, in a full lobby, of all. A
  // newcomer says hello at once as a rule, so that those who never do cannot keep it out.
  // `share` is kept for who lets it in: the session may go on in shared memory.
  std::unique_ptr<transport::Connection> enter(std::unique_ptr<transport::Connection> connection,
                                               bool share);

  // For a newcomer that there is no descriptor for: whoever has waited longest, to be refused, for
  // a place only if all have said hello; null if nobody waits.
  std::unique_ptr<transport::Connection> give_way();

  // What to poll for.
  void add_to(std::vector<pollfd>& wanted) const;
  // When leave() should be called although nothing was readable; -1: never.
  int timeout_ms() const;

  struct Guest {
    std::unique_ptr<transport::Connection> connection;
    bool share = false;
    std::optional<Instant> held_until{};  // Not set: never held.
    // The session that it says it goes on with, by a name that is no secret; 0: none.
    std::uint64_t goes_on = 0;
    std::optional<wire::TokenNonce> charged{};  // Of whose token a session is its own.
  };
  struct Leaving {
    // Whose hello has come, or what will never be one: reading it does not wait.
    std::vector<Guest> ready;
    // Who took too long.
    std::vector<std::unique_ptr<transport::Connection>> late;
    // Who went away, whatever he has said: a process would begin for nobody.
    std::vector<std::unique_ptr<transport::Connection>> gone;

    // As that of the lobby.
    void abandon();
  };
  Leaving leave();

  // For whom there is no place for now: he is `ready` again, before others, whenever leave() is
  // called, which is then wanted by his time, and every few milliseconds for who goes on with a
  // session. False, and he stays the caller's, if too many are, or one for his session.
  bool hold(Guest& guest);
  // Whether somebody is held who says that he goes on with it.
  bool holds(std::uint64_t session) const;

  // In a child after a fork: the sockets are the parent's.
  void abandon();
  std::size_t size() const { return waiting_.size() + held_.size(); }

 private:
  struct Waiting {
    std::unique_ptr<transport::Connection> connection;
    std::string peer;  // Without the port.
    Instant since;
    bool share = false;
    bool begun = false;  // A part of the hello is there, so that polling would not wait.
  };

  const Clock& clock_;
  std::list<Waiting> waiting_;  // Longest waiting first.
  std::vector<Guest> held_;     // The same.
};

}  // namespace flyt::server
