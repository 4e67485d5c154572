#include "client/streams/fences.h"

#include <algorithm>
#include <array>
#include <span>

#include "client/memory_state.h"
#include "client/session.h"
#include "client/streams/stream_wait.h"
#include "commands/memop.h"
#include "rpc/futex.h"

namespace flyt::client {
namespace {

constexpr std::size_t kResults = 15;
constexpr std::size_t kFenceWords = SharedSlots::kWords - kResults;

// The clock is read once in so many looks.
constexpr int kLooksPerTurn = 32;

// Whoever waits for longer shows it, and how often: the server looks for commands for 100 us after
// the last one, and for 100 us more where it has been shown since.
constexpr Duration kShowAfter = std::chrono::microseconds(50);
constexpr Duration kShowEach = std::chrono::microseconds(25);

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

const std::atomic<std::uint64_t>* Fences::word_of(ContextState& context, std::uint64_t fence) {
  const SharedSlots::Area* area = slots_.area_of(context);
  return area == nullptr ? nullptr : &area->word(kResults + fence % kFenceWords);
}

std::uint64_t Fences::mark(ContextState& context, CUstream stream) {
  if (!usable()) return 0;
  const std::uint64_t fence = last_.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::atomic<std::uint64_t>* word = word_of(context, fence);
  if (word == nullptr) return 0;
  if (StreamLoad* const load = load_of(stream)) load->add();
  const CUresult posted =
      session_.post(commands::StreamMemOp{.stream = stream,
                                          .operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                                          .address = address_of(word),
                                          .value = fence,
                                          .flags = 0});
  return posted == CUDA_SUCCESS ? fence : 0;
}

// Only this fence's own number counts: the word may serve another one as well.
Fences::State Fences::look(ContextState& context, std::uint64_t fence) {
  const std::atomic<std::uint64_t>* word = usable() ? word_of(context, fence) : nullptr;
  if (word == nullptr) return State::kUnknown;
  const std::uint64_t found = word->load(std::memory_order_acquire);
  if (session_.channel().noticed()) return State::kUnknown;
  if (found != fence) return found < fence ? State::kNotYet : State::kUnknown;
  session_.memory().watches().note_revelation();
  return State::kDone;
}

Instant Fences::deadline(Instant now) const {
  return now + (session_.waits_sleep() ? std::min(patience_, kSleepersSpin) : patience_);
}

void Fences::note_wait(Instant since) {
  session_.channel().note_wait(commands::StreamMemOp::kOp, since);
  session_.memory().watches().note_revelation();
}

void Fences::note_vain_wait(Instant since) {
  // Shorter ones have not looked at all, as a rule.
  if (system_clock().now() - since < kShowAfter) return;
  session_.channel().note_wait(commands::StreamMemOp::kOp, since);
}

bool Fences::wait(ContextState& context, std::uint64_t fence) {
  return wait_for(context, fence).has_value();
}

std::optional<Instant> Fences::wait_for(ContextState& context, std::uint64_t fence) {
  const Instant now = system_clock().now();
  const std::optional<Instant> done = look_until(context, fence, now, deadline(now));
  done ? note_wait(now) : note_vain_wait(now);
  return done;
}

std::optional<Instant> Fences::look_until(ContextState& context, std::uint64_t fence, Instant now,
                                          Instant deadline) {
  const std::atomic<std::uint64_t>* word = usable() ? word_of(context, fence) : nullptr;
  Instant show_at = now + kShowAfter;
  // What the server has to tell may be why the word does not come.
  while (word != nullptr && !session_.channel().noticed() && now < deadline) {
    for (int i = 0; i < kLooksPerTurn; ++i) {
      if (word->load(std::memory_order_acquire) == fence) {
        return session_.channel().noticed() ? std::nullopt : std::optional(now);
      }
      rpc::relax();
    }
    now = system_clock().now();
    if (now >= show_at) {
      session_.channel().show_waiting();
      show_at = now + kShowEach;
    }
  }
  return std::nullopt;
}

std::optional<Instant> Fences::done(ContextState& context, CUstream stream) {
  const std::uint64_t fence = mark(context, stream);
  return fence == 0 ? std::nullopt : wait_for(context, fence);
}

bool Fences::all_done(ContextState& context) {
  ContextStreams::Room room{};
  std::array<std::uint64_t, std::tuple_size_v<ContextStreams::Room>> fences{};
  std::array<std::optional<LoadSeenDone>, std::tuple_size_v<ContextStreams::Room>> loads{};
  std::size_t count = 0;
  {
    const Lock lock(context.streams.mutex());
    const std::span<const CUstream> streams = context.streams.all(room);
    // As a rule that of the copy before.
    if (streams.size() == 1 && StreamSeenDone::still(session_, streams.front())) return true;
    for (CUstream stream : streams) {
      loads[count].emplace(stream);
      fences[count] = mark(context, stream);
      if (fences[count++] == 0) return false;
    }
  }
  if (count == 0) return false;
  const Instant start = system_clock().now();
  const Instant until = deadline(start);
  std::optional<Instant> now = start;
  for (std::size_t i = 0; i < count; ++i) {
    now = look_until(context, fences[i], *now, until);
    if (!now) {
      note_vain_wait(start);
      return false;
    }
    loads[i]->note();
  }
  note_wait(start);
  return true;
}

std::optional<SharedSlots::Slot> Fences::result(ContextState& context, std::uint64_t bytes) {
  if (bytes > kResultBytesMax || !usable()) return std::nullopt;
  return slots_.take(context);
}

}  // namespace flyt::client
