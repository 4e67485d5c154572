#include "client/transfers/upload_room.h"

#include <algorithm>
#include <numeric>

#include "base/assert.h"

namespace flyt::client {

UploadRoom::Key UploadRoom::key(std::uint64_t context, CUstream stream) {
  const bool of_thread = stream == CU_STREAM_PER_THREAD;
  return {context, stream, of_thread ? std::this_thread::get_id() : std::thread::id()};
}

bool UploadRoom::take(std::uint64_t context, CUstream stream, std::uint64_t bytes,
                      std::uint64_t bytes_max) {
  const Lock lock(mutex_);
  Share& share = shares_[key(context, stream)];
  if (!share.none() && taken() + bytes > bytes_max) return false;
  share.bytes += bytes;
  taken_.fetch_add(bytes, std::memory_order_relaxed);
  any_.store(true, std::memory_order_relaxed);
  return true;
}

bool UploadRoom::take_block(std::uint64_t context, CUstream stream, std::uint32_t lane,
                            const LaneRoom& room) {
  FLYT_ASSERT(lane < wire::kLanesMax);
  const Lock lock(mutex_);
  Share& share = shares_[key(context, stream)];
  const bool full =
      blocks_[lane] >= wire::kLaneBlocksKept / room.lanes || blocks_locked() >= room.blocks;
  if (!share.none() && full) return false;
  ++share.blocks[lane];
  ++blocks_[lane];
  any_.store(true, std::memory_order_relaxed);
  return true;
}

bool UploadRoom::lanes_have_room(const LaneRoom& room) {
  const Lock lock(mutex_);
  return blocks_locked() < room.blocks &&
         std::all_of(blocks_.begin(), blocks_.end(),
                     [&](unsigned blocks) { return blocks < wire::kLaneBlocksKept / room.lanes; });
}

unsigned UploadRoom::blocks_locked() const {
  return std::accumulate(blocks_.begin(), blocks_.end(), 0U);
}

unsigned UploadRoom::blocks() {
  const Lock lock(mutex_);
  return blocks_locked();
}

void UploadRoom::give_back(const Share& share) {
  taken_.fetch_sub(share.bytes, std::memory_order_relaxed);
  for (std::size_t lane = 0; lane < blocks_.size(); ++lane) blocks_[lane] -= share.blocks[lane];
}

void UploadRoom::give(std::uint64_t context, CUstream stream) {
  if (!any_.load(std::memory_order_relaxed)) return;
  const Lock lock(mutex_);
  const auto found = shares_.find(key(context, stream));
  if (found == shares_.end()) return;
  give_back(found->second);
  shares_.erase(found);
  any_.store(!shares_.empty(), std::memory_order_relaxed);
}

template <class Is>
void UploadRoom::give_all(Is is) {
  const Lock lock(mutex_);
  std::erase_if(shares_, [&](const auto& item) REQUIRES(mutex_) {
    if (!is(item.first)) return false;
    give_back(item.second);
    return true;
  });
  any_.store(!shares_.empty(), std::memory_order_relaxed);
}

void UploadRoom::on_context_destroyed(std::uint64_t context) {
  give_all([context](const Key& key) { return std::get<0>(key) == context; });
}

void UploadRoom::on_thread_ends() {
  give_all(
      [thread = std::this_thread::get_id()](const Key& key) { return std::get<2>(key) == thread; });
}

}  // namespace flyt::client
