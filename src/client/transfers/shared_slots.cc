// SharedSlots: memory that the program, the server and the GPU share, handed out in slots.
#include "client/transfers/shared_slots.h"

#include "base/assert.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "commands/memop.h"
#include "commands/pinned.h"

namespace flyt::client {
namespace {

constexpr std::uint64_t kWordsBytes = SharedSlots::kWords * sizeof(std::uint64_t);

}  // namespace

std::atomic<std::uint64_t>& SharedSlots::Area::word(std::size_t index) const {
  FLYT_ASSERT(index < kWords);
  return static_cast<std::atomic<std::uint64_t>*>(pointer_at(base))[index];
}

std::uint64_t SharedSlots::area_bytes() const { return kWordsBytes + slots_ * slot_bytes_; }

SharedSlots::Area* SharedSlots::make() {
  void* memory = session_.memory().pinned().allocate(area_bytes());
  if (memory == nullptr) return nullptr;
  all_.push_back(std::make_unique<Area>(address_of(memory), slots_));
  return all_.back().get();
}

std::vector<SharedSlots::Shared> SharedSlots::shared() {
  const Lock lock(shared_mutex_);
  return shared_;
}

CUresult SharedSlots::share(Area& area, std::uint64_t context) {
  commands::ShareHost::Reply reply;
  rpc::Reply answer;
  const std::uint64_t offset = session_.memory().pinned().offset_of(area.base);
  const commands::ShareHost command{
      .address = area.base, .bytes = area_bytes(), .offset = offset, .flags = 0};
  return session_.ask_and_note(command, reply, answer, [&] {
    const Lock lock(shared_mutex_);
    shared_.push_back({area.base, area_bytes(), context});
    return CUDA_SUCCESS;
  });
}

SharedSlots::Area* SharedSlots::area_of(ContextState& context) {
  const Lock lock(mutex_);
  Place& place = places_[context.home->handle];
  if (place.area != nullptr || place.never) return place.area;
  place.never = !session_.memory().pinned().shared();
  if (place.never || !place.attempts.due()) return nullptr;
  Area* area = spare_.empty() ? make() : spare_.back();
  if (spare_.empty() && area != nullptr) spare_.push_back(area);
  const CUresult shared =
      area == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : share(*area, context.home->handle);
  if (shared != CUDA_SUCCESS) {
    place.never = shared == CUDA_ERROR_NOT_SUPPORTED;
    place.attempts.failed();
    return nullptr;
  }
  spare_.pop_back();
  return place.area = area;
}

std::optional<SharedSlots::Slot> SharedSlots::take(ContextState& context) {
  Area* area = area_of(context);
  if (area == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < slots_; ++i) {
    if (area->taken[i].load(std::memory_order_relaxed) || !Slot::reached(*area, i)) continue;
    if (area->taken[i].exchange(true, std::memory_order_acquire)) continue;
    // Another may have had it and given it back in between.
    if (Slot::reached(*area, i)) return Slot(*area, i, area->base + kWordsBytes + i * slot_bytes_);
    area->taken[i].store(false, std::memory_order_release);
  }
  return std::nullopt;
}

CUresult SharedSlots::Slot::mark(Session& session, CUstream stream) {
  const std::uint64_t ticket = area_->tickets[number_].fetch_add(1) + 1;
  return session.post(commands::StreamMemOp{.stream = stream,
                                            .operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                                            .address = address_of(&area_->word(number_)),
                                            .value = ticket,
                                            .flags = 0});
}

// The server has let its side go with the context, and nothing of it runs any more.
void SharedSlots::on_context_destroyed(std::uint64_t context) {
  {
    const Lock lock(shared_mutex_);
    std::erase_if(shared_, [&](const Shared& area) { return area.context == context; });
  }
  const Lock lock(mutex_);
  const auto found = places_.find(context);
  if (found == places_.end()) return;
  if (Area* area = found->second.area; area != nullptr) {
    for (std::size_t i = 0; i < slots_; ++i) area->word(i).store(area->tickets[i].load());
    spare_.push_back(area);
  }
  places_.erase(found);
}

}  // namespace flyt::client
