// Block: the warps of one thread block, its shared memory and barriers; and the cluster it is in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "softgpu/interpreter/warp.h"

namespace flyt::ptx {

inline constexpr unsigned kBarriers = 16;
inline constexpr std::uint32_t kThreadsPerBlockMax = 1024;
inline constexpr std::uint32_t kBlocksPerClusterMax = 32;

class Cluster;

// What all blocks of a launch have in common. Immutable while it runs.
struct LaunchState {
  std::shared_ptr<const Image> image;
  const Program* program = nullptr;
  const MemoryMap* memory = nullptr;
  Environment* environment = nullptr;
  Launch launch;
  std::uint32_t function = 0;
  std::uint32_t threads = 0;  // Of a block.
  std::uint32_t warps = 0;
  std::uint32_t blocks_per_cluster = 1;
  std::uint64_t block_count = 0;
  std::uint32_t static_shared = 0;
  std::uint32_t shared_bytes = 0;  // Up to the end of dynamic shared memory.
  std::uint32_t local_bytes = 0;   // Of one thread.
  std::uint64_t start_ns = 0;

  // From one thread's local memory to the next one's. An odd number of cache lines: lanes mostly
  // touch the same place of theirs at once, and a power of two would put all of these into one set
  // of the host's cache.
  std::size_t local_stride() const {
    constexpr std::size_t kLineBytes = 64;
    const std::size_t lines = (local_bytes + kLineBytes - 1) / kLineBytes;
    return (lines | 1) * kLineBytes;
  }
};

// Belongs to one worker thread, and is used for one block after another.
class Block {
 public:
  Block(const LaunchState& state, Cluster& cluster, std::uint32_t rank);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool start(std::array<std::uint32_t, 3> index);  // False: the host has no memory.
  // Runs every warp for a while. False: nothing could run.
  bool run(std::uint64_t& steps);
  bool finished() const { return live_warps_ == 0; }
  bool force();

  const LaunchState& state() const { return state_; }
  const Program& program() const { return *state_.program; }
  Cluster& cluster() { return cluster_; }
  std::uint32_t rank() const { return rank_; }
  const std::array<std::uint32_t, 3>& index() const { return index_; }
  const MemoryMap& memory() const { return *state_.memory; }
  std::span<const std::byte> parameters() const { return state_.launch.parameters; }

  // A place in shared memory, by its address in the .shared space (whose upper bits may name a
  // block of the cluster); null: outside.
  std::byte* shared(std::uint64_t address, std::uint64_t bytes);
  std::byte* own_shared(std::uint64_t offset, std::uint64_t bytes) {
    if (offset > state_.shared_bytes || bytes > state_.shared_bytes - offset) return nullptr;
    return shared_.data() + offset;
  }
  bool is_constant(std::uint64_t address) const;  // Lies in a .const variable of the image.
  OwnMemory local(std::uint32_t warp) {
    const std::size_t stride = state_.local_stride();
    return {local_.data() + warp * kLanes * stride, stride, state_.local_bytes};
  }

  // Barriers. `wanted` threads, 0: all of the block. Lanes that only arrive do not wait.
  enum class Reduction : std::uint8_t { kNone, kPopulation, kAnd, kOr };
  void arrive(Warp& warp, unsigned barrier, Mask lanes, std::uint32_t wanted, Reduction reduction,
              Mask values);
  void lanes_gone();  // Threads ended: barriers may be complete now.

  bool faulted() const { return fault_.has_value(); }
  std::optional<Fault>& fault() { return fault_; }
  void warp_finished() { --live_warps_; }
  std::vector<Warp>& warps() { return warps_; }
  // Asynchronous copies to shared memory by mbarrier: nothing is pending, for all are done at once.

 private:
  struct Barrier {
    bool open = false;  // Somebody has arrived.
    std::uint32_t wanted = 0;
    Reduction reduction = Reduction::kNone;
    std::uint32_t population = 0;
    bool all = true;
    bool any = false;
    std::vector<Mask> arrived;  // Of each warp.
  };

  void complete_if_full(unsigned barrier);
  void release(unsigned barrier);
  std::uint32_t reduced(const Barrier& barrier) const;

  const LaunchState& state_;
  Cluster& cluster_;
  const std::uint32_t rank_;
  std::array<std::uint32_t, 3> index_{};
  RawBytes shared_;
  RawBytes local_;
  std::vector<Warp> warps_;
  std::array<Barrier, kBarriers> barriers_;
  std::uint32_t live_warps_ = 0;
  std::optional<Fault> fault_;
};

// The blocks that run at the same time and see each other's shared memory; mostly one.
class Cluster {
 public:
  explicit Cluster(const LaunchState& state);
  bool start(std::uint64_t index);  // Of the cluster in the grid.
  // Runs all blocks for a while; false: none could, though they have not finished.
  bool run(std::uint64_t& steps);
  bool finished() const;
  std::optional<Fault> fault();

  Block* block(std::uint32_t rank) { return rank < blocks_.size() ? blocks_[rank].get() : nullptr; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }
  const std::array<std::uint32_t, 3>& index() const { return index_; }
  // barrier.cluster: each lane arrives, then waits.
  void arrive(Warp& warp, Mask lanes);
  bool may_pass(const Warp& warp, Mask lanes) const;  // The phase its lanes wait for is over.
  void lanes_gone() { complete_if_full(); }

 private:
  void complete_if_full();

  const LaunchState& state_;
  std::array<std::uint32_t, 3> index_{};
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace flyt::ptx
