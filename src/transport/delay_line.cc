#include "transport/delay_line.h"

namespace flyt::transport {

void DelayLine::push(Bytes data, Instant now) {
  FLYT_ASSERT(!ended_);
  if (data.empty()) return;
  parts_.push_back({now + delay_, {data.begin(), data.end()}});
  bytes_ += data.size();
}

void DelayLine::end(Instant now) {
  if (ended_) return;
  ended_ = true;
  end_due_ = now + delay_;
}

Instant DelayLine::next_due() const { return parts_.empty() ? end_due_ : parts_.front().due; }

Bytes DelayLine::due(Instant now) const {
  if (parts_.empty() || now < parts_.front().due) return {};
  return Bytes(parts_.front().bytes).subspan(taken_);
}

void DelayLine::take(std::size_t size) {
  FLYT_ASSERT(!parts_.empty() && size <= parts_.front().bytes.size() - taken_);
  taken_ += size;
  bytes_ -= size;
  if (taken_ < parts_.front().bytes.size()) return;
  parts_.pop_front();
  taken_ = 0;
}

}  // namespace flyt::transport
