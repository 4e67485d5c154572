// Trace: what the program calls, written down while it runs, where FLYT_TRACE asks for it.
//
// An export looks at one byte; when nobody traces, that is all there is:
//
//   CUresult cuEventQuery(CUevent hEvent) {
//     return client::exported<client::Export::cuEventQuery, bodies::cuEventQuery>(hEvent);
//   }
#pragma once

#include <atomic>
#include <cstdint>

#include "client/exports.h"
#include "cuda/types.h"
#include "rpc/observer.h"

namespace flyt::client {

enum class TraceState : std::uint8_t {
  kOff,
  kUnknown,  // The environment was not looked at yet.
  kOpening,  // A thread does so.
  kOn,
};

// Set once, at the first call of a process; a child made by fork() begins again.
extern constinit std::atomic<TraceState> trace_state __attribute__((visibility("hidden")));

inline bool tracing() { return trace_state.load(std::memory_order_relaxed) != TraceState::kOff; }

// One call of the program. Calls inside of it, by this thread, are part of it. Takes no lock, so
// that a signal handler may be in the middle of one.
class TracedCall {
 public:
  explicit TracedCall(Export which);
  // Writes down what it came to. Passes the result on.
  CUresult end(CUresult result);

 private:
  bool counted_ = false;
};

template <Export Which, auto Body, class... Arguments>
[[gnu::cold, gnu::noinline]] CUresult traced(Arguments... arguments) {
  TracedCall call(Which);
  return call.end(Body(arguments...));
}

template <Export Which, auto Body, class... Arguments>
[[gnu::always_inline]] inline CUresult exported(Arguments... arguments) {
  if (tracing()) [[unlikely]]
    return traced<Which, Body>(arguments...);
  return Body(arguments...);
}

// Who watches the channel of a session that is opened now; null where nobody traces.
rpc::CommandObserver* trace_observer();

}  // namespace flyt::client
