// Keeper: a process of the server's without CUDA that holds what must outlive a session's process:
// open files of its device memory and of the memory that it shares with its client. Another process
// of the server that knows the session's token takes over from one that was killed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "server/exchange.h"

namespace flyt::server {

enum class KeptKind : std::uint32_t {
  kMarks = 1,  // How far the session has come: server/recovery/marks.h.
  // Host memory that client and server share; with an id, what the array with that handle holds.
  kHostFile = 2,
  kBlock = 3,       // Device memory of one allocation.
  kSlab = 4,        // Device memory that several allocations share.
  kAllocation = 5,  // Device memory of cuMemCreate.
};
inline constexpr std::uint32_t kKeptKindMax = 5;

// An open file and what it is of its session.
struct Kept {
  KeptKind kind = KeptKind::kMarks;
  std::uint64_t id = 0;  // Where it is mapped, or the client's handle; with the kind its name.
  std::uint64_t bytes = 0;
  std::int32_t device = 0;
  Fd file;
};

struct KeeperOptions {
  std::size_t sessions = 256;  // That may be there at once, each of which has a share of the files.
  Duration keeps{};            // How long what a killed process left is kept.
  // A session has its place on the board from now on, whatever becomes of its process; called with
  // what open() or take_over() was told, while that is there.
  std::function<void(std::uint64_t place)> on_keep = [](std::uint64_t) {};
  // It is free again.
  std::function<void(std::uint64_t place)> on_free = [](std::uint64_t) {};
  // Whether the session that has the place may go on elsewhere: else it was ended on purpose, or
  // given up, which the keeper sees when it is asked something next.
  std::function<bool(std::uint64_t place)> may_return = [](std::uint64_t) { return true; };
  // A listening line (listen_line()): there the server's parent, and later the next one, finds the
  // keeper and gets the door's outside and the board's file. -1: it ends with its parent.
  int home = -1;
  int outside = -1;
  int board = -1;
};

// The keeper itself: serves until the last process that holds the outside of the door (make_door())
// has gone; one with a home until its parent says so, or is gone and there is nothing to keep.
void run_keeper(Fd inside, const KeeperOptions& options);

// The line of the server's parent to a keeper that has a home. Belongs to one thread.
class KeeperLine {
 public:
  // kLost: there is none; kDenied: it has a parent, or is about to end; kUnsupported: it was
  // another build's, and has been told to quit.
  static Result<KeeperLine> find(const std::string& path);

  // Closes when the keeper has ended.
  int fd() const { return line_.get(); }
  Fd take_door() { return std::move(door_); }
  Fd take_board() { return std::move(board_); }
  // What it keeps is nobody's any more. Returns when it has gone, or after a few seconds.
  void quit();

 private:
  Fd line_;
  Fd door_;
  Fd board_;
};

// A session's line to the keeper. Safe from any thread.
class Keeping {
 public:
  // Files of one session.
  static constexpr std::size_t kFilesMax = 1 << 17;
  // Those that it has room for whatever other sessions keep; less, half of an equal part, where the
  // keeper may have few files open. What is more comes out of what they have in common.
  static constexpr std::size_t kFilesShare = 1024;

  // door: the outside, which stays the caller's; -1: nothing is kept. `user`: sessions of others
  // take over nothing of this one's. `place`: this process's on the board.
  Keeping(int door, std::uint32_t user, std::uint64_t place)
      : door_(door), user_(user), place_(place) {}
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;

  bool present() const { return door_ >= 0; }
  // What is kept from now on is that of a new session, by whose token it can be taken over.
  Result<Token> open() EXCLUDES(mutex_);
  // Has a line to the keeper from now on, as long as that answers; others get one when they need
  // it.
  Status reach() EXCLUDES(mutex_);
  // What there is of such a session for somebody of `user` to go on with.
  enum class Known : std::uint8_t {
    kNothing,
    kServed,  // Its process is still there: take_over() would wait for its end.
    kLeft,    // A keeper of an earlier build says so of those that are served, too.
  };
  Result<Known> knows(const Token& token, std::uint32_t user) EXCLUDES(mutex_);
  // Takes over a session whose process was killed; its files stay kept. Waits until the deadline
  // for the process to end. kInvalid if there is no such session.
  Result<std::vector<Kept>> take_over(const Token& token, Instant deadline) EXCLUDES(mutex_);
  // Work that it gave the GPU may go on until the process has ended altogether: waits for that.
  Status await_end(Instant deadline) EXCLUDES(mutex_);
  // What was taken over is counted on this process's place: the old one's is free.
  void counted() EXCLUDES(mutex_);

  // In place of what is kept under that name. Nobody waits for an answer; what the keeper has no
  // room for makes the session one that cannot be taken over.
  void keep(const Kept& kept) EXCLUDES(mutex_);
  void drop(KeptKind kind, std::uint64_t id) EXCLUDES(mutex_);
  // The session ends in order: nothing is kept of it.
  void end() EXCLUDES(mutex_);

 private:
  Status connect() REQUIRES(mutex_);
  Result<std::vector<Kept>> fetch(std::uint64_t count) REQUIRES(mutex_);

  const int door_;
  const std::uint32_t user_;
  const std::uint64_t place_;
  Mutex mutex_;
  Fd line_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
