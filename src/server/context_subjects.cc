#include "server/context_subjects.h"

#include <algorithm>

#include "server/code/code_subjects.h"
#include "server/graphs/graphs.h"
#include "server/lease/moves.h"
#include "server/lease/usage_board.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// More threads than that at a time share one stream: correct, only more ordered than they ask for.
constexpr std::size_t kThreadStreamsMax = 4096;

}  // namespace

CUstream ContextSubjects::thread_stream(std::uint32_t context, std::uint32_t thread) {
  if (context == 0) return nullptr;
  const Lock lock(mutex_);
  const auto found = thread_streams_.find({context, thread});
  if (found != thread_streams_.end()) return found->second->stream();
  if (thread_streams_.size() >= kThreadStreamsMax) return CU_STREAM_PER_THREAD;
  if (session_.enter(context) != CUDA_SUCCESS) return nullptr;
  CUstream stream = nullptr;
  // A per-thread default stream synchronises with the legacy one, as a blocking stream does.
  if (session_.driver().cuStreamCreate(&stream, CU_STREAM_DEFAULT) != CUDA_SUCCESS) return nullptr;
  thread_streams_.emplace(std::pair(context, thread),
                          std::make_shared<StreamOwner>(session_.driver(), context, stream,
                                                        session_.moves().part_of(context)));
  return stream;
}

void ContextSubjects::note_ended_stream(std::uint32_t context) {
  const Lock lock(mutex_);
  ++ended_streams_[context].count;
}

std::uint64_t ContextSubjects::ended_streams(std::uint32_t context) {
  const Lock lock(mutex_);
  const auto found = ended_streams_.find(context);
  if (found == ended_streams_.end() || found->second.done == found->second.count) return 0;
  return found->second.count;
}

void ContextSubjects::note_ended_streams_done(std::uint32_t context, std::uint64_t ended) {
  const Lock lock(mutex_);
  const auto found = ended_streams_.find(context);
  if (found != ended_streams_.end()) found->second.done = std::max(found->second.done, ended);
}

std::vector<CUstream> ContextSubjects::thread_streams(std::uint32_t context) {
  std::vector<CUstream> streams;
  const Lock lock(mutex_);
  for (const auto& [key, stream] : thread_streams_) {
    if (key.first == context) streams.push_back(stream->stream());
  }
  return streams;
}

std::vector<std::pair<std::uint32_t, std::shared_ptr<StreamOwner>>>
ContextSubjects::thread_stream_owners(std::uint32_t context) {
  std::vector<std::pair<std::uint32_t, std::shared_ptr<StreamOwner>>> owners;
  const Lock lock(mutex_);
  for (const auto& [key, owner] : thread_streams_) {
    if (key.first == context) owners.emplace_back(key.second, owner);
  }
  return owners;
}

std::shared_ptr<StreamOwner> ContextSubjects::thread_stream_owner(std::uint32_t context,
                                                                  std::uint32_t thread) {
  const Lock lock(mutex_);
  const auto found = thread_streams_.find({context, thread});
  return found == thread_streams_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<StreamOwner>> ContextSubjects::take_thread_streams(
    std::uint32_t thread) {
  std::vector<std::shared_ptr<StreamOwner>> taken;
  const Lock lock(mutex_);
  auto next = thread_streams_.begin();
  while (next != thread_streams_.end()) {
    const std::uint32_t context = next->first.first;
    if (auto found = thread_streams_.extract({context, thread})) {
      taken.push_back(std::move(found.mapped()));
    }
    next = thread_streams_.upper_bound({context, UINT32_MAX});
  }
  return taken;
}

void ContextSubjects::replace_thread_stream(std::uint32_t context, std::uint32_t thread,
                                            std::shared_ptr<StreamOwner> fresh) {
  const Lock lock(mutex_);
  const auto found = thread_streams_.find({context, thread});
  if (found != thread_streams_.end()) found->second = std::move(fresh);
}

ContextOrigin& ContextSubjects::origin(const Handles::Entry& entry) {
  return static_cast<ContextOrigin&>(*entry.attachment);
}

bool ContextSubjects::has_primary(CUdevice device) const {
  const auto contexts = session_.handles().all(wire::HandleKind::kContext);
  return std::any_of(contexts.begin(), contexts.end(), [&](const Handles::Entry& entry) {
    return origin(entry).primary && origin(entry).device == device;
  });
}

std::size_t ContextSubjects::count() const {
  const auto contexts = session_.handles().all(wire::HandleKind::kContext);
  return static_cast<std::size_t>(
      std::count_if(contexts.begin(), contexts.end(),
                    [](const Handles::Entry& entry) { return origin(entry).green == nullptr; }));
}

std::uint32_t ContextSubjects::home_of_green(std::uint32_t context) const {
  const Lock lock(homes_mutex_);
  const auto found = homes_.find(context);
  return found == homes_.end() ? context : found->second;
}

bool ContextSubjects::has_greens(std::uint32_t context) const {
  const Lock lock(homes_mutex_);
  return std::any_of(homes_.begin(), homes_.end(),
                     [context](const auto& item) { return item.second == context; });
}

CUresult ContextSubjects::note_green(std::uint32_t context, std::uint32_t home) {
  const Lock lock(homes_mutex_);
  if (homes_.size() >= kGreensMax) return CUDA_ERROR_OUT_OF_MEMORY;
  homes_[context] = home;
  greens_.store(homes_.size(), std::memory_order_release);
  return CUDA_SUCCESS;
}

void ContextSubjects::forget_green(std::uint32_t context) {
  const Lock lock(homes_mutex_);
  homes_.erase(context);
  greens_.store(homes_.size(), std::memory_order_release);
}

void ContextSubjects::destroy_thread_streams(std::uint32_t context) {
  const Lock lock(mutex_);
  std::erase_if(thread_streams_, [&](const auto& item) {
    if (item.first.first != context) return false;
    session_.driver().cuStreamDestroy_v2(item.second->stream());
    item.second->abandon();
    return true;
  });
}

CUresult ContextSubjects::end_green(const Handles::Entry& context) {
  const std::uint32_t index = wire::Handle{context.handle}.index();
  ContextOrigin& green = origin(context);
  session_.driver().cuCtxSetCurrent(static_cast<CUcontext>(context.native));
  session_.memory().before_context_destroy();
  {
    const auto alone = session_.alone();
    session_.memory().on_green_destroy(index);
    destroy_thread_streams(index);
    session_.handles().drop(wire::HandleKind::kContext, context.handle);
    session_.handles().drop(wire::HandleKind::kGreenContext, green.green_handle);
    session_.driver().cuCtxSetCurrent(nullptr);
    session_.forget_entered();
  }
  session_.memory().after_green_destroy(index);
  forget_green(index);
  {
    const std::unique_lock lock(green.waits);
    green.ended = true;
  }
  return session_.driver().cuGreenCtxDestroy(green.green);
}

std::vector<Handles::Entry> ContextSubjects::greens_of(std::uint32_t context) const {
  std::vector<Handles::Entry> greens = session_.handles().all(wire::HandleKind::kContext);
  std::erase_if(greens, [&](const Handles::Entry& entry) { return origin(entry).home != context; });
  return greens;
}

void ContextSubjects::let_go(const Handles::Entry& context) {
  const std::uint32_t index = wire::Handle{context.handle}.index();
  std::unique_lock<Gate> alone;
  do {
    // The client may make another one while its work is waited for.
    if (alone.owns_lock()) alone.unlock();
    for (const Handles::Entry& green : greens_of(index)) static_cast<void>(end_green(green));
    session_.driver().cuCtxSetCurrent(static_cast<CUcontext>(context.native));
    session_.memory().before_context_destroy();
    alone = session_.alone();
  } while (!greens_of(index).empty());
  forget_all_of(context);
  alone.unlock();
  session_.memory().after_context_destroy(index);
  // Its work is done, so that nobody waits for long.
  const std::unique_lock lock(origin(context).waits);
  origin(context).ended = true;
}

void ContextSubjects::forget_all_of(const Handles::Entry& context) {
  const std::uint32_t index = wire::Handle{context.handle}.index();
  session_.graphs().on_context_destroy(index);
  session_.memory().on_context_destroy(index);
  session_.code().on_context_destroy(index);
  session_.handles().drop(wire::HandleKind::kContext, context.handle);
  own_usage().context_ended(origin(context).device);
  session_.forget_entered();
  const Lock lock(mutex_);
  ended_streams_.erase(index);
  std::erase_if(thread_streams_, [&](const auto& item) {
    if (item.first.first == index) item.second->abandon();
    return item.first.first == index;
  });
}

void ContextSubjects::count_retained(CUdevice device) {
  const Lock lock(mutex_);
  ++retained_[device];
}

int ContextSubjects::take_retained(CUdevice device) {
  const Lock lock(mutex_);
  const auto found = retained_.find(device);
  return found == retained_.end() ? 0 : std::exchange(found->second, 0);
}

}  // namespace flyt::server
