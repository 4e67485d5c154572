// PinnedMemory: host memory of this process that the GPU copies from and to directly.
#include "server/transfers/pinned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "cuda/types.h"

namespace flyt::server {

PinnedStock::~PinnedStock() {
  const Lock lock(mutex_);
  for (const auto& block : blocks_) {
    // The context may be gone, and the registration with it: an error here means nothing.
    if (block->home != nullptr) driver_.cuMemHostUnregister(block->bytes.data());
    ::munmap(block->bytes.data(), block->bytes.size());
  }
}

void PinnedStock::on_shortage(std::function<void()> call) { shortage_ = std::move(call); }

std::optional<std::size_t> PinnedStock::find_free(bool pinned) const {
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const Block& block = *blocks_[i];
    if (!block.taken && (block.home != nullptr || !pinned)) return i;
  }
  return std::nullopt;
}

std::size_t PinnedStock::reserve() const {
  return static_cast<std::size_t>(
      std::count_if(blocks_.begin(), blocks_.end(),
                    [](const auto& block) { return !block->taken && block->home != nullptr; }));
}

std::size_t PinnedStock::registered() const {
  return static_cast<std::size_t>(std::count_if(
      blocks_.begin(), blocks_.end(), [](const auto& block) { return block->home != nullptr; }));
}

bool PinnedStock::scarce() const { return reserve() < sizes_.reserve || registered() < wanted_; }

PinnedStock::Block* PinnedStock::resting() const {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [](const auto& block) { return block->resting; });
  return found == blocks_.end() ? nullptr : found->get();
}

PinnedStock::Block* PinnedStock::add() {
  void* mapped = ::mmap(nullptr, sizes_.block_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  blocks_.push_back(std::make_unique<Block>());
  blocks_.back()->bytes = mutable_bytes_at(mapped, sizes_.block_bytes);
  return blocks_.back().get();
}

bool PinnedStock::ask_for_more() {
  if (!possible_ || !shortage_) return false;
  const bool loose = std::any_of(blocks_.begin(), blocks_.end(), [](const auto& block) {
    return block->home == nullptr && !block->resting;
  });
  const bool more = scarce() && (blocks_.size() < blocks_max_ || resting() != nullptr);
  return (loose || more) && !std::exchange(asked_, true);
}

std::optional<std::size_t> PinnedStock::take_registered(std::size_t blocks_max) {
  std::optional<std::size_t> found;
  bool ask = false;
  {
    const Lock lock(mutex_);
    blocks_max_ = std::max(blocks_max_, blocks_max);
    found = find_free(true);
    if (found) blocks_[*found]->taken = true;
    ask = ask_for_more();
  }
  if (ask) shortage_();
  return found;
}

std::optional<std::size_t> PinnedStock::take(std::size_t blocks_max) {
  std::optional<std::size_t> found = take_registered(blocks_max);
  if (found) return found;
  const Lock lock(mutex_);
  const Instant deadline = system_clock().now() + kPatience;
  while (asked_ && !(found = find_free(true)) && system_clock().now() < deadline) {
    changed_.wait_for(mutex_, deadline - system_clock().now());
  }
  if (!found) found = find_free(true);
  if (!found) found = find_free(false);
  if (!found && blocks_.size() < blocks_max && add() != nullptr) found = blocks_.size() - 1;
  if (!found) return found;
  blocks_[*found]->taken = true;
  blocks_[*found]->resting = false;
  return found;
}

std::size_t PinnedStock::prepare(std::size_t wanted, std::size_t blocks_max) {
  bool ask = false;
  {
    const Lock lock(mutex_);
    blocks_max_ = std::max(blocks_max_, blocks_max);
    wanted_ = std::max(wanted_, std::min(wanted, blocks_max));
    ask = tried_ ? ask_for_more() : shortage_ && !std::exchange(asked_, true);
  }
  if (ask) shortage_();
  const Lock lock(mutex_);
  std::size_t before = registered();
  Instant deadline = system_clock().now() + kPatience;
  while (asked_ && registered() < wanted_ && system_clock().now() < deadline) {
    changed_.wait_for(mutex_, deadline - system_clock().now());
    if (registered() > before) deadline = system_clock().now() + kPatience;
    before = registered();
  }
  return possible_ || asked_ ? registered() : blocks_max;
}

void PinnedStock::give(std::size_t index) {
  const Lock lock(mutex_);
  blocks_[index]->taken = false;
}

MutableBytes PinnedStock::bytes(std::size_t index) const {
  const Lock lock(mutex_);
  return blocks_[index]->bytes;
}

bool PinnedStock::pinned(std::size_t index) const {
  const Lock lock(mutex_);
  return blocks_[index]->home != nullptr;
}

PinnedStock::Block* PinnedStock::next_to_register() {
  for (const auto& block : blocks_) {
    if (block->home == nullptr && !block->registering && !block->resting) return block.get();
  }
  if (!scarce()) return nullptr;
  if (Block* block = resting()) {
    block->resting = false;
    return block;
  }
  return blocks_.size() < std::max(blocks_max_, sizes_.reserve) ? add() : nullptr;
}

PinnedStock::Block* PinnedStock::next_to_rest() const {
  if (!rests_) return nullptr;
  const bool more_than_reserve = reserve() > sizes_.reserve;
  for (const auto& block : blocks_) {
    const bool spare = block->home == nullptr || more_than_reserve;
    if (!block->taken && !block->registering && !block->resting && spare) return block.get();
  }
  return nullptr;
}

bool PinnedStock::may_rest() const {
  const Lock lock(mutex_);
  return next_to_rest() != nullptr;
}

bool PinnedStock::rest_one() {
  Block* block = nullptr;
  bool pinned = false;
  {
    const Lock lock(mutex_);
    wanted_ = 0;
    block = next_to_rest();
    if (block == nullptr) return false;
    block->taken = block->registering = true;
    pinned = block->home != nullptr;
  }
  const CUresult result = pinned ? driver_.cuMemHostUnregister(block->bytes.data()) : CUDA_SUCCESS;
  // Of memory that is registered still the driver would go on with the pages of before.
  const bool free = result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (free) ::madvise(block->bytes.data(), block->bytes.size(), MADV_DONTNEED);
  const Lock lock(mutex_);
  if (free) block->home = nullptr;
  block->resting = rests_ = free;
  block->taken = block->registering = false;
  changed_.notify_all();
  return free;
}

void PinnedStock::restock(CUcontext context) {
  bool possible = driver_.cuMemHostRegister_v2 != nullptr;
  while (possible) {
    Block* block = nullptr;
    {
      const Lock lock(mutex_);
      block = next_to_register();
      if (block == nullptr) break;
      block->registering = true;
    }
    // Blocks in use too: what is being received, or copied, is where it was.
    const CUresult result = driver_.cuMemHostRegister_v2(block->bytes.data(), block->bytes.size(),
                                                         CU_MEMHOSTREGISTER_PORTABLE);
    possible = result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    const Lock lock(mutex_);
    block->registering = false;
    if (possible) block->home = context;
    changed_.notify_all();
  }
  const Lock lock(mutex_);
  tried_ = true;
  possible_ = possible;
  asked_ = false;
  changed_.notify_all();
}

void PinnedStock::given_up() {
  const Lock lock(mutex_);
  tried_ = true;
  possible_ = registered() != 0;  // A context may have been made meanwhile.
  asked_ = false;
  changed_.notify_all();
}

void PinnedStock::forget(CUcontext context) {
  bool ask = false;
  {
    const Lock lock(mutex_);
    for (const auto& block : blocks_) {
      if (block->home == context) block->home = nullptr;
    }
    ask = ask_for_more();
  }
  if (ask) shortage_();
}

rpc::Chunk* PinnedBufferPool::acquire() {
  const auto index = stock_.take(kChunksMax);
  if (!index) return nullptr;
  const Lock lock(mutex_);
  if (chunks_.size() <= *index) chunks_.resize(*index + 1);
  std::unique_ptr<rpc::Chunk>& chunk = chunks_[*index];
  if (chunk == nullptr) chunk = std::make_unique<rpc::Chunk>(*this, stock_.bytes(*index), *index);
  return chunk.get();
}

Staging::Slot Staging::take(std::size_t bytes, std::size_t bytes_max, Memory memory) {
  FLYT_ASSERT(bytes <= kSlotBytes);
  const bool small = bytes <= kSmallSlotBytes;
  if (small) {
    const Lock lock(mutex_);
    if (!small_.empty()) {
      const Slot slot = small_.back();
      small_.pop_back();
      return slot;
    }
  }
  const std::size_t blocks_max = bytes_max / kSlotBytes;
  const auto block =
      memory == Memory::kAny ? stock_.take(blocks_max) : stock_.take_registered(blocks_max);
  if (!block) return {};
  const MutableBytes at = stock_.bytes(*block);
  if (!small) return {at.data(), kSlotBytes, *block};
  const Lock lock(mutex_);
  for (std::size_t next = kSmallSlotBytes; next < kSlotBytes; next += kSmallSlotBytes) {
    small_.push_back({at.data() + next, kSmallSlotBytes, *block});
  }
  return {at.data(), kSmallSlotBytes, *block};
}

void Staging::give(const Slot& slot) {
  if (slot.bytes != kSmallSlotBytes) return stock_.give(slot.block);
  const Lock lock(mutex_);
  small_.push_back(slot);
}

void HostBuffers::restock(CUcontext context) {
  staging.stock().restock(context);
  received.stock().restock(context);
}

void HostBuffers::forget(CUcontext context) {
  staging.stock().forget(context);
  received.stock().forget(context);
}

}  // namespace flyt::server
