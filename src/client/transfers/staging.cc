// Staging: large copies between the program's ordinary memory and the GPU, by way of shared memory.
#include "client/transfers/staging.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "client/call.h"
#include "client/graphs/captures.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "client/streams/stream_wait.h"
#include "commands/copy.h"
#include "rpc/futex.h"

namespace flyt::client {
namespace {

constexpr std::size_t kSlots = 16;
constexpr std::uint64_t kSlotBytes = 1 * kMiB;
// So many slots of one copy are with the GPU at a time; the others are left to other threads.
constexpr std::size_t kInFlightMax = 8;
constexpr int kLooksAtASlot = 32;

}  // namespace

Staging::Staging(Session& session, Duration patience)
    : session_(session),
      patience_(patience),
      slots_(session, kSlots, kSlotBytes),
      crew_(CopyCrew::helpers_here()) {}

std::optional<Staging::Slot> Staging::take_soon(ContextState& context) {
  // While anything is captured, each post into a stream is heard, and would be no cheaper.
  if (!session_.memory().pinned().shared() || session_.captures().any()) return std::nullopt;
  auto slot = slots_.take(context);
  if (slot || patience_.count() == 0) return slot;
  const Instant deadline = system_clock().now() + patience_;
  while (!slot && system_clock().now() < deadline) {
    for (int i = 0; i < kLooksAtASlot; ++i) rpc::relax();
    slot = slots_.take(context);
  }
  return slot;
}

std::uint64_t Staging::to_device(std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                                 CUstream stream, CUresult& result) {
  result = CUDA_SUCCESS;
  std::uint64_t at = 0;
  while (at < bytes) {
    auto slot = take_soon(context());
    if (!slot) break;
    const std::uint64_t size = std::min(kSlotBytes, bytes - at);
    crew_.copy(pointer_at(slot->address()), pointer_at(from + at), size);
    result = session_.post(commands::CopyOnDevice{
        .stream = stream, .to = to + at, .from = slot->address(), .bytes = size});
    if (result == CUDA_SUCCESS) result = slot->mark(session_, stream);
    if (result != CUDA_SUCCESS) {
      slot->leave(session_, stream);
      break;
    }
    at += size;
  }
  return at;
}

// The slot's bytes are there, or an error says that they never will be.
CUresult Staging::await(const Slot& slot, CUstream stream) {
  const Instant deadline = system_clock().now() + patience_;
  while (!slot.reached() && system_clock().now() < deadline) {
    for (int i = 0; i < kLooksAtASlot && !slot.reached(); ++i) rpc::relax();
  }
  if (slot.reached()) return CUDA_SUCCESS;
  const CUresult result = synchronize_by_reply(session_, stream);
  if (result != CUDA_SUCCESS) return result;
  return slot.reached() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult Staging::begin(Part& part, std::uint64_t from, CUstream stream) {
  const CUresult result = session_.post(commands::CopyOnDevice{
      .stream = stream, .to = part.slot.address(), .from = from + part.at, .bytes = part.bytes});
  return result == CUDA_SUCCESS ? part.slot.mark(session_, stream) : result;
}

std::uint64_t Staging::to_host(std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                               CUstream stream, CUresult& result) {
  result = CUDA_SUCCESS;
  std::deque<Part> parts;
  std::uint64_t begun = 0;
  std::uint64_t there = 0;
  while (result == CUDA_SUCCESS && there < bytes) {
    if (begun < bytes && parts.size() < kInFlightMax) {
      auto slot = parts.empty() ? take_soon(context()) : slots_.take(context());
      if (slot) {
        parts.push_back({std::move(*slot), begun, std::min(kSlotBytes, bytes - begun)});
        result = begin(parts.back(), from, stream);
        begun += parts.back().bytes;
        continue;
      }
    }
    if (parts.empty()) break;
    const Part& part = parts.front();
    result = await(part.slot, stream);
    if (result != CUDA_SUCCESS) break;
    crew_.copy(pointer_at(to + part.at), pointer_at(part.slot.address()), part.bytes);
    there += part.bytes;
    parts.pop_front();
  }
  for (Part& part : parts) part.slot.leave(session_, stream);
  return there;
}

}  // namespace flyt::client
