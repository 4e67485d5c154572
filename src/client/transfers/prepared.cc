#include "client/transfers/prepared.h"

#include <algorithm>
#include <chrono>

#include "client/session.h"
#include "client/transfers/upload_room.h"
#include "commands/copy.h"

namespace flyt::client {
namespace {

// A server keeps what it has told of for a minute after the last command at least.
constexpr Duration kHolds = std::chrono::seconds(30);
// After an answer that brought nothing more.
constexpr Duration kPause = std::chrono::milliseconds(100);

// What a server has ready with a context, by kind. Lanes' blocks come with the lanes.
constexpr std::array<std::uint64_t, 3> kAtFirst = {3 * kMiB, 0, 2 * kMiB};

}  // namespace

std::uint64_t Prepared::most(Kind kind) {
  switch (kind) {
    case Kind::kToDevice:
      return UploadRoom::kBytesMax;
    case Kind::kBlocks:
      return std::uint64_t{wire::kLaneBlocksKept} * wire::kLaneBlockBytesMax;
    case Kind::kToHost:
      return kToHostMax;
  }
  return 0;
}

bool Prepared::told_by_server() const {
  return session_.channel().welcome().highest_op >= commands::PrepareCopies::kOp;
}

std::uint64_t Prepared::known(Kind kind, Instant now) const {
  const State& state = states_[static_cast<std::size_t>(kind)];
  const std::uint64_t at_first = kAtFirst[static_cast<std::size_t>(kind)];
  const bool holds = state.told != 0 && now - state.at < kHolds;
  return holds ? std::max(state.told, at_first) : at_first;
}

std::uint64_t Prepared::bytes(Kind kind) {
  if (!told_by_server()) return most(kind);
  const Lock lock(mutex_);
  return known(kind, system_clock().now());
}

bool Prepared::ask(Kind kind, std::uint64_t wanted) {
  const auto index = static_cast<std::size_t>(kind);
  std::uint64_t before = 0;
  {
    const Lock lock(mutex_);
    const Instant now = system_clock().now();
    before = known(kind, now);
    if (!told_by_server() || before >= most(kind) || now < states_[index].not_before) return false;
  }
  commands::PrepareCopies::Reply reply;
  rpc::Reply answer;
  const CUresult asked =
      session_.ask(commands::PrepareCopies{.kind = static_cast<std::uint32_t>(kind),
                                           .wanted = std::min(wanted, most(kind))},
                   reply, answer);
  const Lock lock(mutex_);
  State& state = states_[index];
  const Instant now = system_clock().now();
  const std::uint64_t told = asked == CUDA_SUCCESS ? std::min(reply.bytes, most(kind)) : 0;
  if (told <= before) state.not_before = now + kPause;
  if (asked != CUDA_SUCCESS) return false;
  state.told = told;
  state.at = now;
  return told > before;
}

void Prepared::forget() {
  const Lock lock(mutex_);
  states_ = {};
}

}  // namespace flyt::client
