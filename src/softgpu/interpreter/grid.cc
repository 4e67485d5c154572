#include "softgpu/interpreter/grid.h"

#include <algorithm>
#include <mutex>

#include "base/clock.h"
#include "softgpu/interpreter/block.h"

namespace flyt::ptx {
namespace {

// Clusters that one worker keeps open when they do not end by themselves: blocks may wait for
// one another. Cooperative launches may keep all.
constexpr std::size_t kOpenMax = 64;
constexpr std::size_t kOpenCooperativeMax = 65536;
constexpr std::size_t kOpenBytesMax = 1u << 30;  // Shared and local memory of open blocks.
constexpr std::uint64_t kTurnsAlone = 8;
constexpr std::uint64_t kClockSteps = 1u << 16;  // Between two looks at the clock.

std::uint64_t now_ns() { return static_cast<std::uint64_t>(system_clock().now().ns); }

std::uint64_t count_of(const std::array<std::uint32_t, 3>& of) {
  return std::uint64_t{of[0]} * of[1] * of[2];
}

class GridRun final : public Grid {
 public:
  explicit GridRun(LaunchState state) : state_(std::move(state)) {
    clusters_ = state_.block_count / state_.blocks_per_cluster;
  }

  void work() override;
  bool done() const override { return finished_.load() == clusters_ || ended_.load(); }
  void stop() override { stop_.store(true); }
  const std::optional<Fault>& fault() const override { return fault_; }

 private:
  void report(Fault fault);
  void report(FaultKind kind);
  bool over(std::uint64_t& steps, std::uint64_t& checked);
  bool begin(std::vector<std::unique_ptr<Cluster>>& open,
             std::vector<std::unique_ptr<Cluster>>& spare);
  std::size_t open_limit() const;
  void drain();

  LaunchState state_;
  std::uint64_t clusters_ = 0;
  std::atomic<std::uint64_t> next_ = 0;
  std::atomic<std::uint64_t> finished_ = 0;
  std::atomic<std::uint64_t> steps_ = 0;
  std::atomic<std::uint32_t> workers_ = 0;
  std::atomic<bool> stop_ = false;   // From outside.
  std::atomic<bool> abort_ = false;  // A fault: everybody stops.
  std::atomic<bool> ended_ = false;
  std::mutex mutex_;  // Guards fault_ until done().
  std::optional<Fault> fault_;
};

void GridRun::report(Fault fault) {
  const std::lock_guard lock(mutex_);
  if (!fault_.has_value()) fault_ = std::move(fault);
  abort_.store(true);
}

void GridRun::report(FaultKind kind) {
  Fault fault;
  fault.kind = kind;
  fault.kernel = state_.program->module->functions()[state_.function].name;
  report(std::move(fault));
}

// True once this worker must leave: a fault, a stop, or a limit.
bool GridRun::over(std::uint64_t& steps, std::uint64_t& checked) {
  if (abort_.load(std::memory_order_relaxed)) return true;
  if (stop_.load(std::memory_order_relaxed)) {
    report(FaultKind::kStopped);
    return true;
  }
  if (steps - checked < kClockSteps && state_.launch.instructions_max == 0) return false;
  const std::uint64_t total = steps_.fetch_add(steps - checked) + (steps - checked);
  checked = steps;
  const Launch& launch = state_.launch;
  const bool late = launch.time_max_ns != 0 && now_ns() - state_.start_ns > launch.time_max_ns;
  if (!late && (launch.instructions_max == 0 || total <= launch.instructions_max)) return false;
  report(FaultKind::kTimeout);
  return true;
}

std::size_t GridRun::open_limit() const {
  const std::size_t bytes =
      state_.blocks_per_cluster *
      (state_.shared_bytes + state_.warps * kLanes * (state_.local_stride() + 1024));
  const std::size_t fits =
      std::max<std::size_t>(1, kOpenBytesMax / std::max<std::size_t>(bytes, 1));
  if (state_.launch.cooperative) return kOpenCooperativeMax;
  return std::min(fits, kOpenMax);
}

// Takes the next cluster of the grid; false: there is none.
bool GridRun::begin(std::vector<std::unique_ptr<Cluster>>& open,
                    std::vector<std::unique_ptr<Cluster>>& spare) {
  if (next_.load(std::memory_order_relaxed) >= clusters_) return false;
  const std::uint64_t index = next_.fetch_add(1);
  if (index >= clusters_) return false;
  if (spare.empty()) spare.push_back(std::make_unique<Cluster>(state_));
  if (!spare.back()->start(index)) {
    report(FaultKind::kResources);
    return false;
  }
  open.push_back(std::move(spare.back()));
  spare.pop_back();
  return true;
}

void GridRun::work() {
  workers_.fetch_add(1);
  std::vector<std::unique_ptr<Cluster>> open;
  std::vector<std::unique_ptr<Cluster>> spare;
  std::uint64_t steps = 0;
  std::uint64_t checked = 0;
  std::uint64_t turns = 0;
  const std::size_t limit = open_limit();
  // Blocks run to their end one after another; one that does not end soon stays open, and
  // another begins, for it may be waiting for it.
  while (!over(steps, checked)) {
    if (open.empty() && !begin(open, spare)) break;
    bool any = false;
    bool stuck = false;
    for (std::size_t i = 0; i < open.size();) {
      Cluster& cluster = *open[i];
      if (!cluster.run(steps))
        stuck = true;
      else
        any = true;
      if (auto fault = cluster.fault(); fault.has_value()) {
        report(std::move(*fault));
        break;
      }
      if (!cluster.finished()) {
        ++i;
        if (over(steps, checked)) break;
        continue;
      }
      finished_.fetch_add(1);
      spare.push_back(std::move(open[i]));
      open[i] = std::move(open.back());
      open.pop_back();
    }
    if (abort_.load()) break;
    // What takes long is seldom waiting: others are begun now and then only.
    const bool begins = state_.launch.cooperative || ++turns % kTurnsAlone == 0;
    const bool more = begins && !open.empty() && open.size() < limit && begin(open, spare);
    if (stuck && !any && !more && !open.empty()) {
      // Threads wait at barriers that can never be full.
      report(FaultKind::kTimeout);
      break;
    }
  }
  if (workers_.fetch_sub(1) == 1 && abort_.load()) ended_.store(true);
}

std::optional<Error> refusal(const LaunchState& state) {
  const Launch& launch = state.launch;
  const auto bad = [](std::string why) { return Error{ErrorCode::kInvalid, std::move(why)}; };
  for (std::size_t i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0 || launch.cluster[i] == 0) {
      return bad("a dimension is zero");
    }
    if (launch.block[i] > kThreadsPerBlockMax || launch.cluster[i] > kBlocksPerClusterMax) {
      return bad("a dimension is too large");
    }
    if (launch.grid[i] % launch.cluster[i] != 0) return bad("clusters do not fill the grid");
  }
  if (count_of(launch.block) > kThreadsPerBlockMax) return bad("too many threads in a block");
  if (count_of(launch.cluster) > kBlocksPerClusterMax) return bad("too many blocks in a cluster");
  if (launch.grid[1] > 65535 || launch.grid[2] > 65535 || launch.grid[0] > 0x7fffffff) {
    return bad("the grid is too large");
  }
  if (launch.dynamic_shared_bytes > kSharedStride / 2) return bad("too much shared memory");
  if (launch.parameters.size() > kParameterBytesMax) return bad("too many parameters");
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Grid>> Grid::make(std::shared_ptr<const Image> image,
                                         std::uint32_t kernel_index, Launch launch,
                                         const MemoryMap& memory, Environment& environment) {
  const Program& program = image->program();
  if (kernel_index >= program.kernels.size()) {
    return Error{ErrorCode::kNotFound, "no such kernel"};
  }
  const KernelInfo& info = program.kernels[kernel_index];
  LaunchState state;
  state.program = &program;
  state.image = std::move(image);
  state.memory = &memory;
  state.environment = &environment;
  state.launch = std::move(launch);
  state.function = info.function;
  state.launch.sm_count = std::max(state.launch.sm_count, 1u);
  if (auto error = refusal(state); error.has_value()) return std::move(*error);
  const std::uint32_t parameter_bytes = program.module->functions()[info.function].parameter_bytes;
  state.launch.parameters.resize(parameter_bytes);
  state.threads = static_cast<std::uint32_t>(count_of(state.launch.block));
  state.warps = (state.threads + kLanes - 1) / kLanes;
  state.blocks_per_cluster = static_cast<std::uint32_t>(count_of(state.launch.cluster));
  state.block_count = count_of(state.launch.grid);
  state.static_shared = info.shared_bytes;
  state.shared_bytes = kReservedSharedBytes + info.shared_bytes;
  if (state.launch.dynamic_shared_bytes != 0) {
    state.shared_bytes = program.dynamic_shared_offset + state.launch.dynamic_shared_bytes;
  }
  state.local_bytes = info.local_bytes;
  if (info.recursive) {
    const std::uint32_t wanted = std::max(state.launch.stack_bytes, kStackBytesDefault);
    state.local_bytes = std::min(std::max(wanted, info.local_bytes), kStackBytesMax);
    state.local_bytes = (state.local_bytes + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
  }
  state.start_ns = now_ns();
  return std::unique_ptr<Grid>(std::make_unique<GridRun>(std::move(state)));
}

std::optional<Fault> run(std::shared_ptr<const Image> image, std::uint32_t kernel_index,
                         Launch launch, const MemoryMap& memory, Environment& environment) {
  auto grid = Grid::make(std::move(image), kernel_index, std::move(launch), memory, environment);
  if (!grid) {
    Fault fault;
    fault.kind = FaultKind::kIllegalInstruction;
    fault.kernel = grid.error().message;
    return fault;
  }
  (*grid)->work();
  return (*grid)->fault();
}

std::string to_string(const Fault& fault) {
  const auto triple = [](const std::array<std::uint32_t, 3>& of) {
    return "(" + std::to_string(of[0]) + "," + std::to_string(of[1]) + "," + std::to_string(of[2]) +
           ")";
  };
  constexpr std::string_view kNames[] = {
      "illegal address",     "misaligned address", "illegal instruction",
      "call of no function", "stack overflow",     "trap",
      "assertion failed",    "time limit",         "stopped",
      "out of host memory"};
  std::string text(kNames[static_cast<std::size_t>(fault.kind)]);
  if (fault.kind <= FaultKind::kMisalignedAddress) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string digits;
    for (std::uint64_t rest = fault.address; rest != 0 || digits.empty(); rest >>= 4) {
      digits.insert(digits.begin(), kDigits[rest & 15]);
    }
    text += " 0x" + digits;
  }
  text += " in kernel '" + fault.kernel + "'";
  if (fault.line == 0) return text;
  return text + ", PTX line " + std::to_string(fault.line) + ", block " + triple(fault.block) +
         ", thread " + triple(fault.thread);
}

}  // namespace flyt::ptx
