// Warp: 32 threads, their registers, and the splits that divergence makes of them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "softgpu/interpreter/program.h"

namespace flyt::ptx {

class Block;

// Storage of raw bytes that is not cleared; null where the host has no memory. What is small comes
// from the heap: a launch of few threads would spend most of its time in mapping and unmapping.
class RawBytes {
 public:
  static constexpr std::size_t kHeapBytesMax = std::size_t{64} << 10;

  bool resize(std::size_t bytes);  // Keeps what is there.
  std::byte* data() { return data_; }
  std::size_t size() const { return size_; }

 private:
  struct alignas(128) Line {
    std::array<std::byte, 128> bytes;
  };
  struct Unmap {
    std::size_t size;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<Line[]> heap_;
  std::unique_ptr<std::byte, Unmap> mapped_{nullptr, Unmap{0}};
  std::byte* data_ = nullptr;  // In one of the two.
  std::size_t size_ = 0;
};

// What the lanes of a warp have of local memory: each has `bytes`, from begin + lane * stride on.
struct OwnMemory {
  std::byte* begin = nullptr;
  std::size_t stride = 0;
  std::uint64_t bytes = 0;

  bool holds(std::uint64_t offset, std::uint64_t size) const {
    return offset <= bytes && size <= bytes - offset;
  }
  // What lies at `offset`, which must be inside.
  std::byte* at(unsigned lane, std::uint64_t offset) const {
    return begin + lane * stride + offset;
  }
};

// Where the registers and locals of the running function lie. Lanes of different frames may share
// a row, never a cell: the rows of a frame are the same for all lanes that run it.
struct Frame {
  std::uint32_t offset32 = 0;
  std::uint32_t offset64 = 0;
  std::uint32_t predicates = 0;
  std::uint32_t local = 0;  // Start of the frame in the thread's local memory.
  std::uint32_t stack = 0;  // First free byte behind it.
  std::uint32_t depth = 0;
  std::uint32_t function = 0;
  friend bool operator==(const Frame&, const Frame&) = default;
};

// Lanes that run together. A warp has at most 32.
struct Split {
  enum class State : std::uint8_t {
    kReady,
    kAtWarp,     // Waits at `pc` for other lanes of its warp.
    kAtBarrier,  // Waits for barrier `barrier` of its block.
    kAtCluster,  // Waits for the other blocks of its cluster.
  };
  Mask mask = 0;
  std::uint32_t pc = 0;
  Frame frame;
  State state = State::kReady;
  bool forced = false;  // No lane will come any more: go on without.
  std::uint8_t barrier = 0;
  std::uint32_t destination = 0;  // bar.red: a predicate, or a Row.
  std::uint64_t last_run = 0;
};

// Belongs to one worker thread.
class Warp {
 public:
  Warp(Block& block, std::uint32_t index);
  // Begins a kernel anew with the lanes that exist. False where there is no memory.
  bool start(std::uint32_t function);
  // Runs until nothing is ready, a fault, or about `budget` steps are done; returns steps done.
  std::uint32_t run(std::uint32_t budget);

  bool finished() const { return splits_.empty(); }
  bool ready() const;
  // Lets a split go on that waits in vain for lanes of its warp.
  bool force();

  // For handlers.
  std::byte* row(Row r) const { return bases_[r.base()] + r.offset(); }
  const std::uint32_t* rows(std::uint32_t first) const { return &program_->rows[first]; }
  const Program& program() const { return *program_; }
  Mask& predicate(std::uint32_t index) { return predicates_[index]; }
  Mask predicate_value(std::uint32_t operand) const {
    if (operand == kAlwaysTrue) return kAllLanes;
    return predicates_[operand >> 1] ^ (0 - (operand & 1));
  }
  void set_predicate(std::uint32_t index, Mask lanes, Mask bits) {
    if (index == kNoPredicate) return;
    Mask& word = predicates_[index];
    word = (word & ~lanes) | (bits & lanes);
  }
  Block& block() { return *block_; }
  std::uint32_t index() const { return index_; }
  Mask active() const { return active_; }
  Mask gone() const { return exited_ | ~existing_; }
  Frame& frame() { return frame_; }
  std::uint32_t pc() const { return pc_; }
  std::vector<Split>& splits() { return splits_; }

  Flow fault(FaultKind kind, Mask lanes, std::uint64_t address = 0);
  // Lanes `taken` (a proper part of the active ones) go to `target`, the others to pc().
  Flow diverge(std::uint32_t target, Mask taken);
  Flow jump(std::uint32_t target);
  // `lanes` of the active ones wait at the current step; the rest go on behind it.
  Flow wait(Mask lanes, Split::State state, std::uint8_t barrier, std::uint32_t destination);
  // The lanes whose partners, members(lane), are all among `lanes` or gone. The others wait at this
  // step; `flow` is what the handler must return when it has served the rest.
  template <class F>
  Mask meet(Mask lanes, Flow& flow, F&& members) {
    Mask waiting = 0;
    for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(rest));
      if ((members(lane) & ~lanes & ~gone()) != 0) waiting |= Mask{1} << lane;
    }
    return waiting == 0 ? lanes : wait_for_lanes(lanes, waiting, flow);
  }
  // Those of `lanes` for which same(lane) holds; the others will execute this step again.
  Mask keep(Mask lanes, Mask same, Flow& flow);
  // Stores where the running split stands; for handlers that changed it on their own.
  Flow settle() {
    save();
    return Flow::kSwitch;
  }
  Flow exit(Mask lanes);
  Flow call(const CallSite& site, std::uint32_t callee, Mask lanes);
  Flow give_back(Mask lanes);
  // Looked at memory that others write: maybe it spins, and whom it waits for needs a turn.
  void polled() {
    if (++polls_ >= kPollsMax) yield_ = true;
    patience_ = patience_ > 32 ? patience_ - 32 : 0;
  }
  bool forced() const { return forced_; }
  void yield() { yield_ = true; }
  Mask& cluster_arrived() { return cluster_arrived_; }  // barrier.cluster: in this phase.
  Mask cluster_arrived() const { return cluster_arrived_; }
  Mask& carry() { return carry_; }  // CC.CF of each lane.

  const OwnMemory& own_memory() const { return own_memory_; }
  std::byte* local(unsigned lane, std::uint64_t offset, std::uint64_t size) const {
    return own_memory_.holds(offset, size) ? own_memory_.at(lane, offset) : nullptr;
  }
  // %tid of each lane along one axis.
  const std::uint32_t* thread_axis(unsigned axis) const { return threads_[axis].data(); }
  std::array<std::uint32_t, 3> thread_index(unsigned lane) const {
    return {threads_[0][lane], threads_[1][lane], threads_[2][lane]};
  }

 private:
  friend class Block;
  static constexpr std::uint32_t kPollsMax = 64;  // Of one turn.

  Mask wait_for_lanes(Mask lanes, Mask waiting, Flow& flow);
  void load(std::size_t split);
  void save();
  bool choose();
  void merge();
  void point();
  bool grow(const Frame& frame, const FunctionCode& function);

  std::array<std::byte*, 4> bases_{};
  Mask* predicates_ = nullptr;
  const Program* program_ = nullptr;
  const Step* steps_ = nullptr;
  std::uint32_t pc_ = 0;
  std::uint32_t limit_ = 0;  // The nearest step where another split of this depth stands.
  Mask active_ = 0;
  std::uint32_t patience_ = 0;
  bool forced_ = false;
  bool yield_ = false;
  bool rotate_ = false;
  std::uint32_t polls_ = 0;
  Mask carry_ = 0;
  Mask cluster_arrived_ = 0;
  Frame frame_;
  Block* block_;
  std::uint32_t index_;
  std::array<std::array<std::uint32_t, kLanes>, 3> threads_{};
  Mask existing_ = 0;
  Mask exited_ = 0;
  std::size_t current_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<Split> splits_;
  OwnMemory own_memory_;
  RawBytes registers32_;
  RawBytes registers64_;
  RawBytes predicate_words_;
};

}  // namespace flyt::ptx
