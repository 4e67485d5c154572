#include "client/fences.h"

#include <array>
#include <utility>

#include "client/memory_state.h"
#include "client/session.h"
#include "commands/memop.h"
#include "commands/pinned.h"
#include "rpc/futex.h"

namespace flyt::client {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kWords = kPageBytes / sizeof(std::uint64_t);
constexpr std::size_t kResults = 15;
constexpr std::size_t kAreaBytes = kPageBytes * (1 + kResults);
static_assert(Fences::kResultBytesMax == kPageBytes);

// The clock is read once in so many looks.
constexpr int kLooksPerTurn = 32;

}  // namespace

// One page of words, then the results' pages.
struct Fences::Area {
  std::uint64_t base = 0;
  std::array<std::atomic<bool>, kResults> taken{};

  std::atomic<std::uint64_t>& word(std::uint64_t number) const {
    return static_cast<std::atomic<std::uint64_t>*>(pointer_at(base))[number % kWords];
  }
};

Fences::Fences(Session& session, Duration patience) : session_(session), patience_(patience) {}

Fences::~Fences() = default;

// What the server would have to do besides waiting keeps a wait from being a fence's.
bool Fences::usable() const {
  MemoryState& memory = session_.memory();
  return patience_.count() > 0 && memory.pinned().shared() && !session_.channel().noticed() &&
         !memory.mirror().active() && !memory.transfers().host_writes_pending();
}

Fences::Area* Fences::area_of(ContextState& context) {
  const Lock lock(mutex_);
  const auto [found, fresh] = areas_.try_emplace(context.handle, nullptr);
  if (!fresh) return found->second;
  PinnedHeap& heap = session_.memory().pinned();
  if (spare_.empty()) {
    void* memory = heap.allocate(kAreaBytes);
    if (memory == nullptr) return nullptr;
    all_.push_back(std::make_unique<Area>());
    all_.back()->base = address_of(memory);
    spare_.push_back(all_.back().get());
  }
  Area* area = spare_.back();
  commands::ShareHost::Reply reply;
  rpc::Reply answer;
  const CUresult shared = session_.ask(commands::ShareHost{.address = area->base,
                                                           .bytes = kAreaBytes,
                                                           .offset = heap.offset_of(area->base),
                                                           .flags = 0},
                                       reply, answer);
  if (shared != CUDA_SUCCESS) return nullptr;
  spare_.pop_back();
  return found->second = area;
}

bool Fences::done(ContextState& context, CUstream stream) {
  if (!usable()) return false;
  const Area* area = area_of(context);
  if (area == nullptr) return false;
  const std::uint64_t number = last_.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::atomic<std::uint64_t>& word = area->word(number);
  const CUresult posted =
      session_.post(commands::StreamMemOp{.stream = stream,
                                          .operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                                          .address = address_of(&word),
                                          .value = number,
                                          .flags = 0});
  if (posted != CUDA_SUCCESS) return false;
  const Instant deadline = system_clock().now() + patience_;
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
    if (system_clock().now() >= deadline) return false;
  }
}

std::optional<Fences::Result> Fences::result(ContextState& context, std::uint64_t bytes) {
  if (bytes > kResultBytesMax || !usable()) return std::nullopt;
  Area* area = area_of(context);
  if (area == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < kResults; ++i) {
    if (area->taken[i].load(std::memory_order_relaxed)) continue;
    if (!area->taken[i].exchange(true, std::memory_order_acquire)) {
      return Result(&area->taken[i], area->base + (1 + i) * kPageBytes);
    }
  }
  return std::nullopt;
}

// The server has let its side go with the context.
void Fences::on_context_destroyed(std::uint64_t context) {
  const Lock lock(mutex_);
  const auto found = areas_.find(context);
  if (found == areas_.end()) return;
  if (found->second != nullptr) spare_.push_back(found->second);
  areas_.erase(found);
}

}  // namespace flyt::client
