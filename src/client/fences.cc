#include "client/fences.h"

#include <algorithm>

#include "client/memory_state.h"
#include "client/session.h"
#include "commands/memop.h"
#include "rpc/futex.h"

namespace flyt::client {
namespace {

constexpr std::size_t kResults = 15;
constexpr std::size_t kFenceWords = SharedSlots::kWords - kResults;

// The clock is read once in so many looks.
constexpr int kLooksPerTurn = 32;

}  // namespace

Fences::Fences(Session& session, Duration patience)
    : session_(session), patience_(patience), slots_(session, kResults, kResultBytesMax) {}

// What the server would have to do besides waiting keeps a wait from being a fence's.
bool Fences::usable() const {
  MemoryState& memory = session_.memory();
  return patience_.count() > 0 && !session_.captures().any() && memory.pinned().shared() &&
         !session_.channel().noticed() && !memory.mirror().active() &&
         !memory.transfers().host_writes_pending();
}

bool Fences::done(ContextState& context, CUstream stream) {
  if (!usable()) return false;
  const SharedSlots::Area* area = slots_.area_of(context);
  if (area == nullptr) return false;
  const std::uint64_t number = last_.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::atomic<std::uint64_t>& word = area->word(kResults + number % kFenceWords);
  const CUresult posted =
      session_.post(commands::StreamMemOp{.stream = stream,
                                          .operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                                          .address = address_of(&word),
                                          .value = number,
                                          .flags = 0});
  if (posted != CUDA_SUCCESS) return false;
  const Duration patience = session_.waits_sleep() ? std::min(patience_, kSleepersSpin) : patience_;
  const Instant deadline = system_clock().now() + patience;
  while (true) {
    for (int i = 0; i < kLooksPerTurn; ++i) {
      // Only this wait's own number counts: the word may serve another wait as well.
      if (word.load(std::memory_order_acquire) == number) {
        if (session_.channel().noticed()) return false;
        session_.channel().count_wait();
        return true;
      }
      rpc::relax();
    }
    // What the server has to tell may be why the word does not come.
    if (session_.channel().noticed() || system_clock().now() >= deadline) return false;
  }
}

std::optional<SharedSlots::Slot> Fences::result(ContextState& context, std::uint64_t bytes) {
  if (bytes > kResultBytesMax || !usable()) return std::nullopt;
  return slots_.take(context);
}

}  // namespace flyt::client
