// MemoryState: what the client keeps about memory, copies, streams and events.
#include "client/memory_state.h"

#include <iterator>

#include "client/call.h"
#include "client/session.h"
#include "client/streams/thread_streams.h"
#include "commands/pinned.h"
#include "commands/stream.h"
#include "cuda/default_stream.h"

namespace flyt::client {

MemoryState::MemoryState(Session& session, Duration fence_patience)
    : streams(wire::HandleKind::kStream),
      events(wire::HandleKind::kEvent),
      pools(wire::HandleKind::kPool),
      allocations(wire::HandleKind::kMemAllocation),
      session_(session),
      pinned_window_(reserve_pinned_window()),
      pinned_(pinned_window_, session.channel().shared_file()),
      mirror_(session, map_, pinned_.space(), pinned_window_),
      managed_(session.devices().count()),
      shared_(session, *this),
      host_calls_(session),
      fences_(session, fence_patience),
      loads_(session),
      transfers_(session, host_calls_, fence_patience) {
  for (const wire::Window& window : session.channel().welcome().windows) {
    if (window.purpose == wire::WindowPurpose::kVmm) {
      reservable_ = std::make_unique<AddressSpace>(window.base, window.bytes);
    }
  }
  for (int device = 0; device < session.devices().count(); ++device) {
    const auto made = pools.make();
    made.state->device = device;
    made.state->is_default = true;
    made.state->name = static_cast<std::uint64_t>(device) + 1;
    pools.publish(made.handle);
    default_pools_.push_back(static_cast<CUmemoryPool>(pointer_at(made.handle)));
  }
  current_pools_ = default_pools_;
}

bool MemoryState::on_host_call(std::uint64_t token, Bytes payload) {
  watches_.note_revelation();
  Reader reader(payload);
  const auto status = reader.take<std::uint32_t>();
  const CUresult result = reader.ok() ? static_cast<CUresult>(status) : CUDA_ERROR_UNKNOWN;
  // A graph's own runs of a function have names of their own.
  const std::uint64_t name =
      reader.remaining() == sizeof(std::uint64_t) ? reader.take<std::uint64_t>() : 0;
  return host_calls_.reached(token, result, name);
}

void MemoryState::on_recovered() {
  host_work_lost_.store(false);
  transfers_.on_recovered();
  host_calls_.on_lost();
  watches_.forget_all();
  loads_.forget_all();
}

std::vector<SharedSlots::Shared> MemoryState::shared_areas() {
  std::vector<SharedSlots::Shared> areas = fences_.shared_areas();
  for (const SharedSlots::Shared& area : transfers_.shared_areas()) areas.push_back(area);
  return areas;
}

void MemoryState::on_lost() {
  if (transfers_.host_work_under_way()) host_work_lost_.store(true);
  transfers_.on_lost();
  host_calls_.on_lost();
  loads_.forget_all();
}

void MemoryState::on_green_destroyed(ContextState& context) {
  const Lock lock(mutex_);
  std::erase_if(default_stream_ids_,
                [&](const auto& item) { return item.first.first == context.handle; });
}

void MemoryState::on_thread_ends(const void* thread) {
  transfers_.on_thread_ends();
  loads_.on_thread_ends(thread);
  const Lock lock(mutex_);
  std::erase_if(default_stream_ids_, [&](const auto& item) { return item.first.second == thread; });
}

void MemoryState::on_context_destroyed(ContextState& context) {
  for (const Memory& memory : map_.remove_owned_by(context.handle)) {
    if (memory.kind == MemoryKind::kManagedVariable) remove_managed_variable(memory);
    if (memory.kind == MemoryKind::kOpened) shared_.on_forgotten(memory);
    if (memory.kind == MemoryKind::kDevice) shared_.on_freed(memory.base);
    if (memory.on_device() && memory.kind != MemoryKind::kManaged) continue;
    if (memory.mirrored) static_cast<void>(mirror_.end(memory));
    if (memory.kind == MemoryKind::kManaged) managed_.remove(memory.base, memory.bytes);
    if (!memory.on_device()) {
      transfers_.forget_arrivals(memory.base, memory.bytes);
      if (!memory.mirrored) mirror_.drop_candidate();
    }
    if (memory.kind != MemoryKind::kRegistered) {
      pinned_.free(pointer_at(memory.base), memory.bytes);
    }
  }
  streams.for_each([&](std::uint64_t handle, const StreamState& state) {
    if (state.context == &context) streams.drop(handle);
  });
  events.for_each([&](std::uint64_t handle, const EventState& state) {
    if (state.context == &context) events.drop(handle);
  });
  mirror_.on_context_destroyed(context.handle);
  session_.captures().on_context_destroyed(context);
  images.on_context_destroyed(context);
  peers.on_context_destroyed(context.handle);
  transfers_.on_context_destroyed(context.handle);
  fences_.on_context_destroyed(context.handle);
  loads_.on_context_destroyed(context.handle);
}

CUresult MemoryState::add_shared(Memory memory) {
  const commands::ShareHost command{.address = memory.base,
                                    .bytes = memory.bytes,
                                    .offset = pinned_.offset_of(memory.base),
                                    .flags = map_flags(memory)};
  memory.mirrored = true;
  memory.device_base = memory.base;
  commands::ShareHost::Reply reply;
  rpc::Reply answer;
  return session_.ask_and_note(command, reply, answer, [&] {
    return map_.add(memory) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  });
}

CUresult MemoryState::add_managed_variable(std::uint64_t address, std::uint64_t bytes,
                                           std::uint64_t owner, CUdevice device) {
  const Lock lock(variables_mutex_);
  if (const auto known = map_.find(address)) {
    return known->kind == MemoryKind::kManagedVariable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (!variable_pages_.map(address, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory memory;
  memory.kind = MemoryKind::kManagedVariable;
  memory.base = address;
  memory.bytes = bytes;
  memory.context = owner;
  memory.device = device;
  CUresult result = map_.add(memory) ? mirror_.begin(address) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    managed_.add(address, bytes);
    return result;
  }
  static_cast<void>(map_.remove(address, MemoryKind::kManagedVariable));
  variable_pages_.unmap(address, bytes);
  return result;
}

void MemoryState::remove_managed_variable(const Memory& memory) {
  const Lock lock(variables_mutex_);
  // If the server has dropped it by itself, that is no fault.
  static_cast<void>(mirror_.end(memory));
  managed_.remove(memory.base, memory.bytes);
  variable_pages_.unmap(memory.base, memory.bytes);
}

CUresult MemoryState::make_stream(ContextState& context, unsigned int flags, int priority,
                                  CUstream& out) {
  const auto made = streams.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made.state->context = &context;
  made.state->handle = made.handle;
  made.state->flags = flags;
  made.state->priority = priority;
  made.state->id = next_stream_id();
  const auto stream = static_cast<CUstream>(pointer_at(made.handle));
  const CUresult result = session_.post_and_note(
      commands::StreamCreate{.stream = stream, .flags = flags, .priority = priority},
      [&] { streams.publish(made.handle); });
  if (result != CUDA_SUCCESS) {
    streams.discard(made.handle);
    return result;
  }
  context.home->streams.add(stream, flags);
  out = stream;
  return CUDA_SUCCESS;
}

std::uint64_t MemoryState::default_stream_id(const ContextState& context, const void* thread) {
  const Lock lock(mutex_);
  std::uint64_t& id = default_stream_ids_[{context.handle, thread}];
  if (id == 0) id = next_stream_id();
  return id;
}

CUmemoryPool MemoryState::default_pool(CUdevice device) const {
  const auto index = static_cast<std::size_t>(device);
  return device >= 0 && index < default_pools_.size() ? default_pools_[index] : nullptr;
}

CUmemoryPool MemoryState::current_pool(CUdevice device) const {
  const Lock lock(mutex_);
  const auto index = static_cast<std::size_t>(device);
  return device >= 0 && index < current_pools_.size() ? current_pools_[index] : nullptr;
}

void MemoryState::set_current_pool(CUdevice device, CUmemoryPool pool) {
  const Lock lock(mutex_);
  current_pools_[static_cast<std::size_t>(device)] = pool;
}

void MemoryState::add_reservation(std::uint64_t base, std::uint64_t bytes) {
  const Lock lock(mutex_);
  reservations_.emplace(base, bytes);
}

bool MemoryState::remove_reservation(std::uint64_t base, std::uint64_t bytes) {
  const Lock lock(mutex_);
  const auto found = reservations_.find(base);
  if (found == reservations_.end() || found->second != bytes) return false;
  reservations_.erase(found);
  return true;
}

MemoryState::Reservation MemoryState::reservation_around(std::uint64_t base,
                                                         std::uint64_t bytes) const {
  const Lock lock(mutex_);
  const auto after = reservations_.upper_bound(base);
  if (after == reservations_.begin()) return {};
  const auto& [start, size] = *std::prev(after);
  if (base - start >= size || bytes > size - (base - start)) return {};
  return {start, size};
}

CUresult check(CUmemoryPool handle) {
  // The driver takes a null or dead pool for a bad value, not for a bad handle.
  return session().memory().pools.find(address_of(handle)) != nullptr ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult check(CUevent handle) {
  if (session().memory().events.find(address_of(handle)) != nullptr) return CUDA_SUCCESS;
  // What once was an event of ours has been destroyed; natively it then seems to have no context.
  const wire::Handle shape{address_of(handle)};
  return shape.valid_as(wire::HandleKind::kEvent) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                  : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check(CUstream& handle) {
  handle = cuda::resolve_default(handle);
  const std::uint64_t value = address_of(handle);
  if (value == wire::kStreamLegacy) return CUDA_SUCCESS;
  if (value == wire::kStreamPerThread) {
    note_thread_stream();
    context().home->streams.note_unnamed();
    return CUDA_SUCCESS;
  }
  const StreamState* state = session().memory().streams.find(value);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return state->context->live.load(std::memory_order_relaxed) == 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                                   : CUDA_SUCCESS;
}

}  // namespace flyt::client
