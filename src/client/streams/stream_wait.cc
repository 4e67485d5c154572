// Waiting for a stream.
#include "client/streams/stream_wait.h"

#include <optional>

#include "client/call.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "commands/stream.h"

namespace flyt::client {
namespace {

// So short that no answer of the server could be told from one at the time of the wait before.
constexpr Duration kFresh = std::chrono::microseconds(20);

}  // namespace

StreamSeenDone::StreamSeenDone(Session& session, CUstream stream)
    : session_(session), stream_(stream), before_(session.channel().newest()) {}

void StreamSeenDone::note(Instant at) const {
  // Another thread may have sent something into the stream behind the wait.
  const std::uint64_t now = session_.channel().newest();
  if (now != before_ + 1) return;
  thread_state().seen_done = {.session = &session_,
                              .context = context().handle,
                              .stream = stream_,
                              .newest = now,
                              .at = at};
}

bool StreamSeenDone::still(Session& session, CUstream stream) {
  const SeenDone& seen = thread_state().seen_done;
  return seen.newest == session.channel().newest() && seen.session == &session &&
         seen.stream == stream && seen.context == context().handle &&
         !session.channel().noticed() && system_clock().now() - seen.at < kFresh;
}

CUresult synchronize_by_reply(Session& session, CUstream stream) {
  const StreamSeenDone seen(session, stream);
  const LoadSeenDone load(stream);
  commands::StreamSynchronize::Reply reply;
  rpc::Reply answer;
  const CUresult result = session.ask(commands::StreamSynchronize{.stream = stream}, reply, answer);
  session.memory().transfers().note_done(context().handle, stream);
  if (result != CUDA_SUCCESS) return result;
  load.note();
  seen.note();
  return session.take_posted_error();
}

CUresult synchronize(Session& session, CUstream stream) {
  if (StreamSeenDone::still(session, stream)) return session.take_posted_error();
  const StreamSeenDone seen(session, stream);
  const LoadSeenDone load(stream);
  const std::optional<Instant> done = session.memory().fences().done(context(), stream);
  if (!done) return synchronize_by_reply(session, stream);
  session.memory().transfers().note_done(context().handle, stream);
  load.note();
  seen.note(*done);
  return session.take_posted_error();
}

}  // namespace flyt::client
