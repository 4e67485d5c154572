#include "softgpu/interpreter/block.h"

#include <algorithm>

#include "softgpu/interpreter/lanes.h"

namespace flyt::ptx {
namespace {

// Steps of one warp before the next one of its block gets its turn.
constexpr std::uint32_t kWarpTurn = 8192;

}  // namespace

Block::Block(const LaunchState& state, Cluster& cluster, std::uint32_t rank)
    : state_(state), cluster_(cluster), rank_(rank) {
  warps_.reserve(state.warps);
  for (std::uint32_t i = 0; i < state.warps; ++i) warps_.emplace_back(*this, i);
  for (Barrier& barrier : barriers_) barrier.arrived.assign(state.warps, 0);
}

bool Block::start(std::array<std::uint32_t, 3> index) {
  index_ = index;
  fault_.reset();
  for (Barrier& barrier : barriers_) {
    barrier.open = false;
    std::fill(barrier.arrived.begin(), barrier.arrived.end(), 0);
  }
  // Whole warps have local memory, though some lanes may not exist.
  const std::size_t local = state_.warps * kLanes * state_.local_stride();
  if (!shared_.resize(state_.shared_bytes) || !local_.resize(local)) {
    return false;
  }
  std::memset(shared_.data(), 0, kReservedSharedBytes);
  live_warps_ = state_.warps;
  for (Warp& warp : warps_) {
    if (!warp.start(state_.function)) return false;
  }
  return true;
}

bool Block::run(std::uint64_t& steps) {
  bool any = false;
  for (Warp& warp : warps_) {
    if (warp.finished() || !warp.ready()) continue;
    any = true;
    steps += warp.run(kWarpTurn);
    if (faulted()) return true;
  }
  return any;
}

bool Block::force() {
  bool any = false;
  for (Warp& warp : warps_) any |= warp.force();
  return any;
}

std::byte* Block::shared(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t place = address / kSharedStride;
  if (place == 0) return own_shared(address, bytes);
  Block* other =
      cluster_.block(static_cast<std::uint32_t>(std::min<std::uint64_t>(place, 1000) - 1));
  return other == nullptr ? nullptr : other->own_shared(address % kSharedStride, bytes);
}

bool Block::is_constant(std::uint64_t address) const {
  const auto& variables = state_.program->module->variables();
  const auto& addresses = state_.image->addresses();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].space == Space::kConst && address - addresses[i] < variables[i].size) {
      return true;
    }
  }
  return false;
}

void Block::arrive(Warp& warp, unsigned index, Mask lanes, std::uint32_t wanted,
                   Reduction reduction, Mask values) {
  Barrier& barrier = barriers_[index];
  if (!barrier.open) {
    barrier.open = true;
    barrier.wanted = wanted;
    barrier.reduction = Reduction::kNone;
    barrier.population = 0;
    barrier.all = true;
    barrier.any = false;
  }
  if (reduction != Reduction::kNone) barrier.reduction = reduction;
  barrier.population += static_cast<std::uint32_t>(std::popcount(values & lanes));
  barrier.all &= (values & lanes) == lanes;
  barrier.any |= (values & lanes) != 0;
  barrier.arrived[warp.index()] |= lanes;
  complete_if_full(index);
}

void Block::lanes_gone() {
  for (unsigned i = 0; i < kBarriers; ++i) {
    if (barriers_[i].open) complete_if_full(i);
  }
  cluster_.lanes_gone();
}

// Threads that have ended count as arrived; those that never were too, once their warp has come.
void Block::complete_if_full(unsigned index) {
  const Barrier& barrier = barriers_[index];
  if (barrier.wanted == 0) {
    for (const Warp& warp : warps_) {
      if ((barrier.arrived[warp.index()] | warp.gone()) != kAllLanes) return;
    }
  } else {
    std::uint32_t count = 0;
    for (const Warp& warp : warps_) {
      const Mask arrived = barrier.arrived[warp.index()];
      if (arrived != 0) count += static_cast<std::uint32_t>(std::popcount(arrived | warp.gone()));
    }
    if (count < barrier.wanted) return;
  }
  release(index);
}

std::uint32_t Block::reduced(const Barrier& barrier) const {
  switch (barrier.reduction) {
    case Reduction::kPopulation:
      return barrier.population;
    case Reduction::kAnd:
      return barrier.all ? 1 : 0;
    case Reduction::kOr:
      return barrier.any ? 1 : 0;
    case Reduction::kNone:
      break;
  }
  return 0;
}

void Block::release(unsigned index) {
  Barrier& barrier = barriers_[index];
  const std::uint32_t result = reduced(barrier);
  for (Warp& warp : warps_) {
    for (Split& split : warp.splits_) {
      if (split.state != Split::State::kAtBarrier || split.barrier != index) continue;
      split.state = Split::State::kReady;
      if (barrier.reduction == Reduction::kNone) continue;
      const Frame& frame = split.frame;
      if (barrier.reduction == Reduction::kPopulation) {
        std::byte* row =
            warp.registers32_.data() + frame.offset32 + Row{split.destination}.offset();
        for_lanes(split.mask, [&](unsigned lane) { put<std::uint32_t>(row, lane, result); });
      } else if (split.destination != kNoPredicate) {
        Mask word = 0;
        std::byte* place = warp.predicate_words_.data() +
                           (std::size_t{frame.predicates} + split.destination) * sizeof(Mask);
        std::memcpy(&word, place, sizeof(word));
        word = (word & ~split.mask) | (result != 0 ? split.mask : 0);
        std::memcpy(place, &word, sizeof(word));
      }
    }
  }
  barrier.open = false;
  std::fill(barrier.arrived.begin(), barrier.arrived.end(), 0);
}

Cluster::Cluster(const LaunchState& state) : state_(state) {
  for (std::uint32_t rank = 0; rank < state.blocks_per_cluster; ++rank) {
    blocks_.push_back(std::make_unique<Block>(state, *this, rank));
  }
}

bool Cluster::start(std::uint64_t index) {
  const Launch& launch = state_.launch;
  std::array<std::uint64_t, 3> clusters{};
  for (std::size_t i = 0; i < 3; ++i) clusters[i] = launch.grid[i] / launch.cluster[i];
  const std::array<std::uint64_t, 3> place = {
      index % clusters[0], index / clusters[0] % clusters[1], index / clusters[0] / clusters[1]};
  for (std::uint32_t rank = 0; rank < blocks_.size(); ++rank) {
    const auto& size = launch.cluster;
    const std::array<std::uint32_t, 3> within = {rank % size[0], rank / size[0] % size[1],
                                                 rank / size[0] / size[1]};
    std::array<std::uint32_t, 3> block{};
    for (std::size_t i = 0; i < 3; ++i) {
      block[i] = static_cast<std::uint32_t>(place[i] * size[i]) + within[i];
    }
    if (!blocks_[rank]->start(block)) return false;
  }
  return true;
}

bool Cluster::run(std::uint64_t& steps) {
  bool any = false;
  for (auto& block : blocks_) {
    if (block->finished()) continue;
    any |= block->run(steps);
    if (block->faulted()) return true;
  }
  if (any) return true;
  // Nothing is ready. Lanes that wait for lanes which went another way may go on without.
  for (auto& block : blocks_) any |= block->force();
  return any;
}

bool Cluster::finished() const {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [](const auto& block) { return block->finished(); });
}

std::optional<Fault> Cluster::fault() {
  for (auto& block : blocks_) {
    if (block->faulted()) return block->fault();
  }
  return std::nullopt;
}

void Cluster::arrive(Warp& warp, Mask lanes) {
  warp.cluster_arrived() |= lanes;
  complete_if_full();
}

bool Cluster::may_pass(const Warp& warp, Mask lanes) const {
  return (warp.cluster_arrived() & lanes) == 0;
}

void Cluster::complete_if_full() {
  bool any = false;
  for (const auto& block : blocks_) {
    for (const Warp& warp : block->warps()) {
      any |= warp.cluster_arrived() != 0;
      if ((warp.cluster_arrived() | warp.gone()) != kAllLanes) return;
    }
  }
  if (!any) return;
  for (const auto& block : blocks_) {
    for (Warp& warp : block->warps()) {
      warp.cluster_arrived() = 0;
      for (Split& split : warp.splits()) {
        if (split.state == Split::State::kAtCluster) split.state = Split::State::kReady;
      }
    }
  }
}

}  // namespace flyt::ptx
