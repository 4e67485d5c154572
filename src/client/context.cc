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

void push_current(ContextState* context) {
  ThreadState& thread = thread_state();
  if (thread.current_state != nullptr) {
    auto stacked = std::make_unique<StackedContext>();
    *stacked = {thread.current_state, thread.below};
    thread.below = stacked.release();
  }
  set_current(context);
}

void pop_current() {
  ThreadState& thread = thread_state();
  const std::unique_ptr<StackedContext> top(thread.below);
  thread.below = top == nullptr ? nullptr : top->below;
  set_current(top == nullptr ? nullptr : top->context);
}

}  // namespace flyt::client
