#include "server/context_subjects.h"

#include "server/code_subjects.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// More threads than that share the last stream: correct, only more ordered than they ask for.
constexpr std::size_t kThreadStreamsMax = 4096;

}  // namespace

CUstream ContextSubjects::thread_stream(std::uint32_t context, std::uint32_t thread) {
  const Lock lock(mutex_);
  const auto found = thread_streams_.find({context, thread});
  if (found != thread_streams_.end()) return found->second;
  if (thread_streams_.size() >= kThreadStreamsMax) return CU_STREAM_PER_THREAD;
  if (session_.enter(context) != CUDA_SUCCESS) return nullptr;
  CUstream stream = nullptr;
  // A per-thread default stream synchronises with the legacy one, as a blocking stream does.
  if (session_.driver().cuStreamCreate(&stream, CU_STREAM_DEFAULT) != CUDA_SUCCESS) return nullptr;
  thread_streams_.emplace(std::pair(context, thread), stream);
  return stream;
}

void ContextSubjects::let_go(CUcontext handle) {
  const auto entry = session_.handles().drop(wire::HandleKind::kContext, address_of(handle));
  if (!entry) return;
  const std::uint32_t index = wire::Handle{entry.handle}.index();
  session_.memory().on_context_destroy(index, static_cast<CUcontext>(entry.native));
  session_.code().on_context_destroy(index);
  session_.forget_entered();
  const Lock lock(mutex_);
  std::erase_if(thread_streams_, [&](const auto& item) { return item.first.first == index; });
}

void ContextSubjects::count_retained(CUdevice device) {
  const Lock lock(mutex_);
  ++retained_[device];
}

int ContextSubjects::take_retained(CUdevice device) {
  const Lock lock(mutex_);
  return std::exchange(retained_[device], 0);
}

}  // namespace flyt::server
