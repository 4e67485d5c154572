#include "server/streams/stream_depths.h"

#include <algorithm>
#include <utility>

#include "server/graphs/graphs.h"
#include "server/session.h"

namespace flyt::server {

void StreamDepths::prune(Depth& depth) {
  while (!depth.marks.empty() && depth.marks.front()->poll() != CUDA_ERROR_NOT_READY) {
    depth.marks.pop_front();
  }
}

void StreamDepths::count(std::uint32_t context, CUstream stream) {
  // Captured work does not wait in its stream.
  if (session_.graphs().capturing(stream)) {
    session_.graphs().note_captured();
    return;
  }
  const Key key{stream, context};
  if (last_ == depths_.end() || last_->first != key) last_ = depths_.try_emplace(key).first;
  Depth& depth = last_->second;
  if (++depth.unmarked < kMarkEvery) return;
  CUresult result = CUDA_SUCCESS;
  auto mark = events_.record(context, stream, result);
  if (mark == nullptr) {
    // The stream is broken or gone, and so is what was in it.
    depths_.erase(std::exchange(last_, depths_.end()));
    return;
  }
  depth.unmarked = 0;
  depth.marks.push_back(std::move(mark));
  prune(depth);
  // What the driver has taken beyond that it has taken.
  while (depth.marks.size() > 2 * kMarksMax) depth.marks.pop_front();
  maybe_full_ = maybe_full_ || depth.marks.size() >= kMarksMax;
}

void StreamDepths::forget(CUstream stream) {
  last_ = depths_.end();
  depths_.erase(depths_.lower_bound({stream, 0}), depths_.upper_bound({stream, UINT32_MAX}));
}

void StreamDepths::forget_context(std::uint32_t context) {
  last_ = depths_.end();
  std::erase_if(depths_, [context](const auto& item) { return item.first.second == context; });
}

bool StreamDepths::full() {
  if (!maybe_full_) return false;
  const auto using_contexts = session_.use();
  return full_inside();
}

bool StreamDepths::full_inside() {
  maybe_full_ = maybe_full_ && deeper_than(kMarksMax - 1);
  return maybe_full_;
}

bool StreamDepths::deeper_than(std::size_t marks) {
  return std::any_of(depths_.begin(), depths_.end(), [this, marks](auto& item) {
    if (item.second.marks.size() <= marks) return false;
    session_.enter(item.first.second);
    prune(item.second);
    return item.second.marks.size() > marks;
  });
}

}  // namespace flyt::server
