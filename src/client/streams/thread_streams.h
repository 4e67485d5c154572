// Threads' own default streams, which end with their threads.
#pragma once

#include "client/context.h"

namespace flyt::client {

// As below, the first time.
void watch_end_of_thread(ThreadState& state);

// The calling thread uses its own default stream: the server is told when the thread ends. Not when
// the process does.
inline void note_thread_stream() {
  ThreadState& state = thread_state();
  if (!state.has_streams) [[unlikely]]
    watch_end_of_thread(state);
}

}  // namespace flyt::client
