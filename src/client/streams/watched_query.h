// Asking whether an event or a stream is done: of the GPU itself where it can tell of an event, of
// the server once, and of what that tells from then on.
#pragma once

#include "cuda/types.h"

namespace flyt::client {

class Session;
struct EventState;

// CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or an error; of an event that has been recorded. For the
// calling thread's current context, or the event's.
CUresult query_event(Session& session, CUevent event, EventState& state);
CUresult wait_for_event(Session& session, CUevent event, EventState& state);
CUresult query_stream(Session& session, CUstream stream);

}  // namespace flyt::client
