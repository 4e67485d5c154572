// Beginnings: where streams that have moved begin, behind the ends of those they took the place of.
#include "server/lease/beginnings.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace flyt::server {
namespace {

// How long ends are waited for: they come in microseconds if nothing but the GPU's next look stands
// before them, and that takes longer where few cores are shared with it.
constexpr Duration kMoment = std::chrono::milliseconds(20);
constexpr Duration kMomentOfFewCores = std::chrono::milliseconds(100);
constexpr unsigned kFewCores = 4;
// Before a beginning nothing else stands once its end has passed.
constexpr Duration kBeginningMax = std::chrono::milliseconds(500);
constexpr Duration kPause = std::chrono::microseconds(5);

Duration moment() {
  return std::thread::hardware_concurrency() < kFewCores ? kMomentOfFewCores : kMoment;
}

bool passed(const Fence& fence) { return fence.poll() != CUDA_ERROR_NOT_READY; }

}  // namespace

void Beginnings::add(std::vector<Beginning> beginnings) {
  const Lock lock(mutex_);
  std::erase_if(beginnings_, [](const Beginning& each) { return passed(*each.begun); });
  std::move(beginnings.begin(), beginnings.end(), std::back_inserter(beginnings_));
  // The client may have seen by itself that work is done, or have been told before the move.
  patience_.store(moment());
  any_.store(!beginnings_.empty(), std::memory_order_release);
}

void Beginnings::clear() {
  const Lock lock(mutex_);
  beginnings_.clear();
  any_.store(false, std::memory_order_release);
}

void Beginnings::note_done() {
  if (any_.load(std::memory_order_acquire)) patience_.store(moment());
}

bool Beginnings::settle(CUstream stream) {
  if (!any_.load(std::memory_order_acquire)) return false;
  const Lock lock(mutex_);
  const Instant deadline = clock_.now() + moment();
  const std::vector<bool> behind = behind_which(stream);
  std::vector<Beginning> left;
  bool begun = std::find(behind.begin(), behind.end(), true) != behind.end();
  for (std::size_t i = 0; i < behind.size(); ++i) {
    const Beginning& each = beginnings_[i];
    if (behind[i] && begun) {
      begun = ends(*each.end, deadline) && passes(*each.begun, clock_.now() + kBeginningMax);
    }
    if (!behind[i] || !begun) left.push_back(each);
  }
  beginnings_ = std::move(left);
  any_.store(!beginnings_.empty(), std::memory_order_release);
  return begun;
}

// A stream may have moved more than once. A default stream is behind all of them.
std::vector<bool> Beginnings::behind_which(CUstream stream) const {
  std::vector<bool> behind(beginnings_.size());
  std::vector<CUstream> chain = {stream};
  for (std::size_t i = behind.size(); i-- > 0;) {
    behind[i] = stream == CU_STREAM_LEGACY ||
                std::find(chain.begin(), chain.end(), beginnings_[i].fresh) != chain.end();
    if (behind[i]) chain.push_back(beginnings_[i].old);
  }
  return behind;
}

// The old stream may have more to do than the client knows to be done.
bool Beginnings::ends(const Fence& end, Instant deadline) {
  if (passed(end)) return true;
  const Duration patience = patience_.load();
  if (patience <= Duration::zero()) return false;
  const Instant start = clock_.now();
  const bool ended = passes(end, std::min(deadline, start + patience));
  patience_.store(patience - (clock_.now() - start));
  return ended;
}

bool Beginnings::passes(const Fence& fence, Instant deadline) const {
  while (!passed(fence)) {
    if (clock_.now() >= deadline) return false;
    clock_.sleep_for(kPause);
  }
  return true;
}

}  // namespace flyt::server
