// Foresight: loads the libraries that a client will ask for next, as far as the store knows what
// programs loaded after what, while the client does something else (ADR 59).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/log.h"
#include "cuda/code_facts.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "server/code/code_store.h"

namespace flyt::server {

// One thread's. A library that was loaded and never asked for stays until it makes room.
class Foresight {
 public:
  static constexpr std::size_t kKnownMax = 4096;  // Of a session; then it foresees no more.
  struct Limits {
    std::size_t ahead = 64;            // Libraries that nobody has asked for yet.
    std::uint64_t bytes = 128 * kMiB;  // Of all those together.
  };

  // `store`: null foresees nothing.
  Foresight(const driver::Table& driver, CodeStore* store, const Log& log)
      : Foresight(driver, store, log, Limits{}) {}
  Foresight(const driver::Table& driver, CodeStore* store, const Log& log, Limits limits)
      : driver_(driver), store_(store), log_(log), limits_(limits) {}

  // A library as it was loaded, of which the driver keeps reading the code.
  struct Loaded {
    CUlibrary native = nullptr;
    std::vector<std::byte> code;  // And a zero byte behind it.
    cuda::CodeFacts facts;
  };
  // The one of that name, if it is loaded, which is the caller's from then on.
  std::optional<Loaded> take(const CodeName& name);

  std::uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }  // Any thread.

  // The client has had a library loaded, of which nothing was said, and knows it. May write to the
  // store.
  void on_load(const CodeName& name);

  // Does a little: loads a library, say. False: there is no more to do until on_load().
  bool step();

 private:
  struct Ahead {
    CodeName name;
    Loaded loaded;
  };

  std::optional<CodeName> next_of(const Digest& digest);
  void note(const Digest& digest, const CodeName& next);
  void load(const CodeName& name);
  void make_room(std::uint64_t bytes);

  const driver::Table& driver_;
  CodeStore* const store_;
  const Log& log_;
  const Limits limits_;
  std::deque<Ahead> ahead_;  // The oldest in front.
  std::uint64_t ahead_bytes_ = 0;
  std::set<Digest> known_;  // What the client has loaded, and what was tried here.
  std::map<Digest, std::optional<CodeName>> next_;  // As the store has it.
  std::optional<Digest> last_;                      // That the client had loaded.
  std::optional<Digest> looked_at_;                 // As far as it was looked ahead.
  std::size_t looks_left_ = 0;
  bool complained_ = false;
  std::atomic<std::uint64_t> taken_{0};
};

}  // namespace flyt::server
