// HostCallBook: the program's host functions and callbacks, and which of them are due.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "cuda/types.h"
#include "wire/limits.h"

namespace flyt::client {

// Guarded by its owner.
class HostCallBook {
 public:
  // What to run; `status` is that of the stream.
  using Body = std::function<void(CUresult status)>;

  struct Ready {
    std::uint64_t token = 0;
    CUresult status = CUDA_SUCCESS;
    std::uint64_t name = 0;  // Of a graph's function.
    unsigned times = 0;      // That the session had gone on elsewhere when it was reached.
  };
  struct Call {
    Body body;
    unsigned times = 0;  // That the session had gone on elsewhere when it was added.
    bool once = false;
    bool reached = false;  // Of what is reached once.
  };

  // Its token, which is not 0.
  std::uint64_t add(Body body, unsigned times);
  // True: it was there.
  bool remove(std::uint64_t token) { return waiting_.erase(token) != 0; }
  // A function that graphs run, as often as they come to it or (once) the destructor of an object
  // of theirs: its name.
  std::uint64_t add_of_graphs(Body body, bool once);
  bool remove_of_graphs(std::uint64_t name) { return of_graphs_.erase(name) != 0; }

  // The server says that a stream or graph has come to one. What nobody added, or what has been
  // reached and comes once, changes nothing. False: more are due than the server may have come to.
  bool reached(const Ready& ready);
  bool any_due() const { return !due_.empty(); }
  // The next one that is due; without a body if it was lost meanwhile. Only if any is.
  std::pair<Ready, Call> take();
  // Nothing will be reached any more, but what comes anew; how many were waiting.
  std::size_t forget_all();

 private:
  Call* find(const Ready& ready);

  std::map<std::uint64_t, Call> waiting_;
  std::map<std::uint64_t, Call> of_graphs_;
  std::deque<Ready> due_;
  std::uint64_t next_ = 1;
};

}  // namespace flyt::client
