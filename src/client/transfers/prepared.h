// Prepared: how much memory for copies the server has ready.
//
// What the server receives into and sends from has to be known to its driver, or the driver waits
// for the stream in the middle of a copy, and with it the server's one thread that runs commands,
// and all threads of the program. Making memory known may wait for kernels, too. So a client has no
// more under way than is ready, and asks for more in the thread that copies.
#pragma once

#include <array>
#include <cstdint>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "wire/limits.h"

namespace flyt::client {

class Session;

// Safe from any thread.
class Prepared {
 public:
  // As prepare_copies numbers them.
  enum class Kind : std::uint32_t {
    kToDevice = 0,  // As data of commands.
    kBlocks = 1,    // Of lanes.
    kToHost = 2,
  };
  static constexpr std::uint64_t kToHostMax = 256 * kMiB;

  explicit Prepared(Session& session) : session_(session) {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  // How much may be under way, as far as is known.
  std::uint64_t bytes(Kind kind) EXCLUDES(mutex_);
  // Has the server prepare as much, if it can. True: there is more than was known. Not under
  // Session::steady().
  bool ask(Kind kind, std::uint64_t wanted) EXCLUDES(mutex_);
  // A context is gone, and what was known in it, or the session goes on in another process.
  void forget() EXCLUDES(mutex_);

 private:
  struct State {
    std::uint64_t told = 0;
    Instant at{};          // When it was told.
    Instant not_before{};  // When to ask again.
  };

  bool told_by_server() const;
  static std::uint64_t most(Kind kind);
  std::uint64_t known(Kind kind, Instant now) const REQUIRES(mutex_);

  Session& session_;
  Mutex mutex_;
  std::array<State, 3> states_ GUARDED_BY(mutex_);  // By kind.
};

}  // namespace flyt::client
