#include "client/context.h"

namespace flyt::client {

ContextState* Contexts::make(CUdevice device, bool primary) {
  const auto made = table_.make();
  if (!made) return nullptr;
  made.state->handle = made.handle;
  made.state->index = wire::Handle{made.handle}.index();
  made.state->device = device;
  made.state->primary = primary;
  made.state->id = next_id_.fetch_add(1, std::memory_order_relaxed);
  table_.publish(made.handle);
  return made.state;
}

void set_current(ContextState* context) {
  ThreadState& thread = thread_state();
  thread.current_state = context;
  thread.current = context == nullptr ? 0 : context->handle;
}

}  // namespace flyt::client
