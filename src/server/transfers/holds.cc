// Holds: received bytes that copies to the device still read.
#include "server/transfers/holds.h"

#include <utility>

#include "server/session.h"

namespace flyt::server {

void Holds::hold(std::uint32_t context, CUstream stream, const rpc::ChunkRef& chunk,
                 std::uint64_t bytes) {
  const Lock lock(mutex_);
  if (open_.context != context || open_.stream != stream) {
    seal_locked();
    session_.enter(context);
    open_.context = context;
    open_.stream = stream;
  }
  open_.bytes += bytes;
  if (open_.chunks.empty() || open_.chunks.back().get() != chunk.get()) {
    open_.chunks.push_back(chunk);
  }
  if (open_.bytes >= kBatchBytesMax) seal_locked();
}

void Holds::seal() {
  const Lock lock(mutex_);
  seal_locked();
}

void Holds::seal_locked() {
  Batch batch = std::exchange(open_, {});
  if (batch.chunks.empty()) return;
  // Without a fence the stream or its context is broken or gone: nothing reads the bytes any more.
  CUresult result = session_.enter(batch.context);
  if (result != CUDA_SUCCESS) return;
  batch.fence = events_.record(batch.context, batch.stream, result);
  if (batch.fence != nullptr) sealed_.push_back(std::move(batch));
}

bool Holds::poll() {
  const Lock lock(mutex_);
  for (auto batch = sealed_.begin(); batch != sealed_.end();) {
    if (batch->fence->poll() == CUDA_ERROR_NOT_READY) {
      ++batch;
    } else {
      batch = sealed_.erase(batch);
    }
  }
  return !sealed_.empty() || !open_.chunks.empty();
}

}  // namespace flyt::server
