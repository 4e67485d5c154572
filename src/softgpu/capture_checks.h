// What stream captures forbid: asked by every call that could be in the way of one.
#pragma once

#include "cuda/types.h"

namespace flyt::softgpu {

class Context;
class Driver;
class Event;
class Partition;
class Stream;

// The checks, for while GraphStore::capturing(). What they refuse invalidates the captures that
// are in its way, as CUDA says.
//
// Before work is given to the stream: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, or
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream while a blocking stream captures.
CUresult check_work(Driver& driver, const Context& context, const Stream& stream);
// Before a copy or fill that waits for itself: work, and refused where the stream itself captures.
CUresult check_waiting_work(Driver& driver, const Context& context, const Stream& stream);
// Before a stream is waited for or asked whether it is done.
CUresult check_wait(Driver& driver, const Context& context, const Stream& stream);
// Before a whole context, or a green one of it, is waited for.
CUresult check_context_wait(Driver& driver, const Context& context, const Partition& partition);
// The same for what does not wait: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED where one of its streams
// captures.
CUresult check_not_captured(Driver& driver, const Context& context, const Partition& partition);
// Before what may wait for all work without being asked to: refused according to the modes of
// captures and of the calling thread (cuThreadExchangeStreamCaptureMode).
CUresult check_unsafe(Driver& driver);
// Before an event is waited for or asked: CUDA_ERROR_CAPTURED_EVENT, or check_unsafe.
CUresult check_event(Driver& driver, const Event& event);

}  // namespace flyt::softgpu
