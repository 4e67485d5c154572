// Exchange: what sessions of one server share, kept in a process of its own. A session gives it an
// open file of the driver's, or a few bytes that mean something to the driver, and gets a token of
// 128 random bits; another session of the same user that knows the token gets what it stands for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace flyt::server {

using Token = std::array<std::byte, 16>;

// Whom a session shares with, and who may go on with it: a number for what is known of the peer
// itself (transport::identity_of_peer), whatever its hello says.
std::uint32_t user_of(std::string_view identity);

enum class SharedKind : std::uint32_t { kMemory = 1, kEvent = 2, kPool = 3 };

// What a token stands for.
struct SharedObject {
  static constexpr std::size_t kFactsBytes = 96;

  SharedKind kind = SharedKind::kMemory;
  std::array<std::byte, kFactsBytes> facts{};
  Fd file;  // kMemory only.
};

// Each server has one door to its exchange, which its sessions' processes inherit.
struct Door {
  Fd inside;
  Fd outside;
};
Result<Door> make_door();

// The exchange itself: serves until the last process that holds the outside of the door has gone.
// What a session shared goes with it, but not what others hold of it by then. `files_max`: that the
// process may have open; 0: as many as the system lets it.
void run_exchange(Fd inside, std::size_t files_max = 0);

// A session's access. Safe from any thread.
class Exchange {
 public:
  // Objects that one session may share at a time, where the exchange has room for twice as many:
  // none has more than it leaves to the others.
  static constexpr std::size_t kObjectsMax = 4096;

  // door: the outside, which stays the caller's; -1: nothing can be shared. `user`: sessions of
  // others find nothing of this one's.
  Exchange(int door, std::uint32_t user) : door_(door), user_(user) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  bool present() const { return door_ >= 0; }
  Result<Token> share(const SharedObject& object) EXCLUDES(mutex_);
  // kInvalid if there is no such object of that kind.
  Result<SharedObject> find(const Token& token, SharedKind kind) EXCLUDES(mutex_);
  // The token means nothing from now on.
  void withdraw(const Token& token) EXCLUDES(mutex_);

 private:
  Status connect() REQUIRES(mutex_);

  const int door_;
  const std::uint32_t user_;
  Mutex mutex_;
  Fd line_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
