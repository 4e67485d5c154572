// Threads' own default streams, which end with their threads.
#include "client/streams/thread_streams.h"

#include <pthread.h>

#include <optional>

#include "client/current.h"
#include "client/exchange.h"
#include "client/graphs/captures.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "commands/stream.h"

namespace flyt::client {
namespace {

// Once more if a destructor that comes later uses such a stream.
void on_end(void* thread) {
  static_cast<ThreadState*>(thread)->has_streams = false;
  // None after a fork: the parent's streams are the parent's.
  Session* const session = current_session();
  if (session == nullptr) return;
  session->captures().on_thread_ends();
  session->memory().on_thread_ends(thread);
  if (session->channel().welcome().highest_op < commands::EndThread::kOp) return;
  // A server that is lost has none any more, nor has who goes on in its place: nobody waits for it.
  if (session->channel().lost()) return;
  // Without a context: another thread may end the current one.
  static_cast<void>(send(session->channel(), 0, commands::EndThread{}));
}

// Not a thread-local with a destructor: exit() would run that too, while functions that it calls
// later may still use the stream; and other thread-locals' may, which come before this.
std::optional<pthread_key_t> make_key() {
  pthread_key_t key{};
  if (::pthread_key_create(&key, &on_end) != 0) return std::nullopt;
  return key;
}

}  // namespace

void watch_end_of_thread(ThreadState& state) {
  static const std::optional<pthread_key_t> key = make_key();
  // Without one the stream stays until its context ends.
  if (key && ::pthread_setspecific(*key, &state) != 0) return;
  state.has_streams = true;
}

}  // namespace flyt::client
