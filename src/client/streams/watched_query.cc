// Asking whether an event or a stream is done: of the GPU itself where it can tell, of the server
// once, and of what that tells from then on.
#include "client/streams/watched_query.h"

#include <algorithm>

#include "client/call.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "client/streams/stream_wait.h"
#include "commands/event.h"
#include "commands/stream.h"

namespace flyt::client {
namespace {

// So long an event that is unfinished by its fence is not asked about, unless the program may know
// better: what is behind the event may be done before the fence behind it is. A failure is told
// later by as much.
constexpr Duration kFenceTrust = std::chrono::microseconds(50);

// Whether the server knows how.
bool server_watches(Session& session) {
  const std::uint16_t highest = session.channel().welcome().highest_op;
  return highest >= std::max(commands::WatchEvent::kOp, commands::WatchStream::kOp);
}

// What a watch tells, by all that the server has sent so far.
Watches::Known look(Session& session, std::uint64_t token, std::uint64_t subject,
                    std::uint64_t position) {
  if (token == 0) return Watches::Known::kNothing;
  session.channel().take_in();
  return session.memory().watches().look(token, subject, position);
}

// The answer of a query from what a watch tells; `ask` asks the server plainly.
template <class Ask>
CUresult answer(Session& session, Watches::Known known, std::uint64_t token, Ask&& ask) {
  // What was taken in may have been the end of the session.
  if (const CUresult lost = session.health(); lost != CUDA_SUCCESS) return lost;
  if (known == Watches::Known::kDone) return session.take_posted_error();
  if (known == Watches::Known::kNotReady) return CUDA_ERROR_NOT_READY;
  Watches& watches = session.memory().watches();
  const std::uint64_t revelations = watches.revelations();
  const CUresult result = ask();
  if (result == CUDA_ERROR_NOT_READY) watches.renew(token, revelations);
  return result;
}

// Asks with a command that leaves a watch behind.
template <class Command>
CUresult ask_and_watch(Session& session, const Command& command) {
  typename Command::Reply reply;
  const CUresult result = call(command, reply);
  if (result != CUDA_ERROR_NOT_READY || !reply.watched) {
    session.memory().watches().drop(command.token);
  }
  return result;
}

bool seen_busy(const Session& session, CUstream stream) {
  const SeenBusy& seen = thread_state().seen_busy;
  return seen.session == &session && seen.stream == stream && seen.context == context().handle &&
         seen.newest == current_session()->channel().newest();
}

}  // namespace

CUresult query_event(Session& session, CUevent event, EventState& state) {
  const auto ask = [event] { return call(commands::EventQuery{.event = event}); };
  if (!state.ours() || state.captured.load() || session.captures().any()) return ask();
  // Records that come after this line are another question.
  const std::uint64_t records = state.records.load();
  if (const std::uint64_t fence = state.fence.of(records); fence != 0) {
    const Fences::State found = session.memory().fences().look(*state.context, fence);
    if (found == Fences::State::kDone) return session.take_posted_error();
    if (found == Fences::State::kNotYet &&
        state.fence.revelations() == session.memory().watches().revelations() &&
        state.fence.unfinished_for(system_clock().now()) < kFenceTrust) {
      return CUDA_ERROR_NOT_READY;
    }
  }
  if (!server_watches(session)) return ask();
  Watches& watches = session.memory().watches();
  std::uint64_t token = state.watch.load();
  const Watches::Known known = look(session, token, address_of(event), records);
  if (known != Watches::Known::kNothing) return answer(session, known, token, ask);
  token = watches.begin(address_of(event), records);
  if (token == 0) return ask();
  state.watch.store(token);
  return ask_and_watch(session, commands::WatchEvent{.event = event, .token = token});
}

CUresult wait_for_event(Session& session, CUevent event, EventState& state) {
  const bool here = state.ours() && !state.captured.load() && !session.captures().any();
  const std::uint64_t fence = here ? state.fence.of(state.records.load()) : 0;
  if (fence != 0 && session.memory().fences().wait(*state.context, fence)) {
    return session.take_posted_error();
  }
  return call(commands::EventSynchronize{.event = event});
}

// A stream is watched when a thread asks about it for the second time and nothing was sent in
// between: marking its end costs the GPU something.
CUresult query_stream(Session& session, CUstream stream) {
  const auto ask = [stream] { return call(commands::StreamQuery{.stream = stream}); };
  Watches& watches = session.memory().watches();
  if (session.captures().any() || !server_watches(session)) return ask();
  SeenBusy& seen = thread_state().seen_busy;
  const bool again = seen_busy(session, stream);
  // No word of the GPU's tells this one: writing it would be work in the stream itself.
  if (StreamSeenDone::still(session, stream)) return session.take_posted_error();
  const std::uint64_t before = session.channel().newest();
  std::uint64_t token = again ? seen.watch : 0;
  CUresult result = CUDA_SUCCESS;
  const Watches::Known known = look(session, token, address_of(stream), 0);
  if (known != Watches::Known::kNothing) {
    result = answer(session, known, token, ask);
  } else {
    token = again ? watches.begin(address_of(stream), 0) : 0;
    result = token == 0
                 ? ask()
                 : ask_and_watch(session, commands::WatchStream{.stream = stream, .token = token});
  }
  const std::uint64_t now = session.channel().newest();
  // Another thread may have sent something into the stream behind the query.
  const bool alone = now == before || now == before + 1;
  if (result != CUDA_ERROR_NOT_READY || !alone) {
    seen = {};
  } else {
    seen = {.session = &session,
            .context = context().handle,
            .stream = stream,
            .newest = now,
            .watch = token};
  }
  return result;
}

}  // namespace flyt::client
