#include "client/context.h"

namespace flyt::client {

ResourceDescriptions::ResourceDescriptions() : table(wire::HandleKind::kResourceDescription) {}

Contexts::Contexts(std::size_t devices)
    : greens(wire::HandleKind::kGreenContext),
      table_(wire::HandleKind::kContext),
      primaries_(std::make_unique<PrimaryContext[]>(devices)) {}

ContextState* Contexts::make(CUdevice device, bool primary, ContextState* home,
                             std::uint64_t green) {
  const auto made = table_.make();
  if (!made) return nullptr;
  made.state->handle = made.handle;
  made.state->index = wire::Handle{made.handle}.index();
  made.state->device = device;
  made.state->primary = primary;
  made.state->home = home != nullptr ? home : made.state;
  made.state->green = green;
  made.state->id = next_id_.fetch_add(1, std::memory_order_relaxed);
  table_.publish(made.handle);
  return made.state;
}

std::vector<ContextState*> Contexts::greens_of(const ContextState& primary) const {
  std::vector<ContextState*> found;
  greens.for_each([&](std::uint64_t, const GreenState& green) {
    if (green.context->home == &primary && green.context->live.load() != 0) {
      found.push_back(green.context);
    }
  });
  return found;
}

std::uint64_t ResourceDescriptions::find(const std::vector<std::uint64_t>& resources) const {
  const Lock lock(mutex_);
  const auto found = known_.find(resources);
  return found == known_.end() ? 0 : found->second;
}

void ResourceDescriptions::add(std::uint64_t handle, const std::vector<std::uint64_t>& resources) {
  const Lock lock(mutex_);
  known_.emplace(resources, handle);
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
