#include "server/streams/ended_streams.h"

#include <utility>

namespace flyt::server {

void EndedStreams::note(std::uint32_t context, CUstream stream) {
  if (driver_.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) return;
  CUresult result = CUDA_SUCCESS;
  auto end = events_.record(context, stream, result);
  if (end == nullptr) {
    unknown_ = true;
    return;
  }
  if (ends_.size() >= kLooked) drop_passed();
  ends_.push_back(std::move(end));
}

bool EndedStreams::all_done() {
  if (!ends_.empty()) drop_passed();
  return ends_.empty() && !unknown_;
}

void EndedStreams::drop_passed() {
  std::erase_if(ends_, [](const auto& end) { return end->poll() != CUDA_ERROR_NOT_READY; });
}

}  // namespace flyt::server
