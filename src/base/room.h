// Room: how many processes may use one GPU at once, where its driver takes only so many (NVIDIA's
// MPS), and who of them is there: a file that all processes of that GPU are given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/roll.h"

namespace flyt {

// One process's. A process has its place until it ends, whatever it dies of. A session that can go
// on in another process keeps its place for a while after that, which nobody else gets. Safe from
// any thread, but that one thread takes the place.
class Room {
 public:
  static constexpr std::size_t kPlacesMax = 1024;
  static constexpr std::size_t kWaitersMax = 1024;

  enum class Kind : std::uint32_t {
    kNone = 0,
    kReady = 1,  // Waits for a client.
    kSession = 2,
    kLeaving = 3,  // Gives way, and is about to end.
  };
  // Who has said that there is no room.
  enum class Why : std::uint32_t { kLimit = 0, kDriver = 1 };

  // kUnsupported: processes of another build use it.
  static Result<std::unique_ptr<Room>> open(const std::string& path,
                                            const Clock& clock = system_clock());
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  struct Count {
    std::uint32_t sessions = 0;
    std::uint32_t ready = 0;
    std::uint32_t awaited = 0;  // Sessions without a process, which may come back.
    std::uint32_t used() const { return sessions + ready + awaited; }
  };
  // Without waiting for anybody. As another process than those that have places sees it.
  Count count() const;

  // Takes a place, if there are fewer than `most`. `returns`: the session that goes on in this
  // process, for which a place is kept, which is this one then; 0: it is a new one. Of a place that
  // is kept it does not matter how many there are. A process that waits for a client does not take
  // what somebody waits for.
  [[nodiscard]] bool enter(Kind kind, std::uint64_t returns, std::uint32_t most);
  // It has waited for a client, and has one.
  void serve(std::uint64_t returns);
  // From now on the place is kept for so long if this process ends.
  void keep(std::uint64_t session, std::uint32_t seconds);
  // The session is over: from now on it is not.
  void forget();
  // Of another process, which has ended: whether its session may come back.
  void note_end(std::uint32_t process, bool may_return);

  // Whoever waits for room is counted, and those who wait for a client hear of it.
  class Waiting {
   public:
    Waiting(Room& room, Why why);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Room& room_;
    std::optional<std::size_t> number_;
  };
  // A number that rises whenever somebody begins to wait.
  std::uint32_t wanted() const;
  // Until it is another one, until rouse(), or so long; now and then for nothing.
  void await_wanted(std::uint32_t seen, Duration at_most) const;
  void rouse();
  // Of a process that waits for a client: whether it has to end, so that another one finds room.
  // True once; its place does not count any more then.
  bool gives_way(std::uint32_t most);

  // Sessions that were refused, of all processes since the file was made.
  void count_refusal(Why why);
  std::uint64_t refusals(Why why) const;

 private:
  struct Page;
  struct Tally;

  Room(Roll roll, const Clock& clock);
  void each_place(const std::function<void(std::size_t place, bool there)>& seen) const;
  bool awaited(std::size_t place) const;
  std::uint32_t waiting(Why why) const;
  // Behind the door.
  Tally tally(std::uint64_t returns);

  const Roll roll_;
  const Clock& clock_;
  Page* const page_;
  std::optional<std::size_t> place_;
};

}  // namespace flyt
