#include "softgpu/interpreter/warp.h"

#include <sys/mman.h>

#include <algorithm>
#include <span>
#include <utility>

#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/lanes.h"

namespace flyt::ptx {
namespace {

// Taken branches to earlier steps, after which another split of the warp gets its turn. A step
// that looks at shared data counts as many (see Warp::polled).
constexpr std::uint32_t kPatience = 1024;
constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};

}  // namespace

void RawBytes::Unmap::operator()(std::byte* data) const { ::munmap(data, size); }

bool RawBytes::resize(std::size_t bytes) {
  if (bytes <= size_) return true;
  const std::size_t least = std::max(bytes, size_ * 2);
  if (least <= kHeapBytesMax) {
    const std::size_t lines = (least + sizeof(Line) - 1) / sizeof(Line);
    auto made = std::make_unique<Line[]>(lines);
    std::byte* const begin = std::as_writable_bytes(std::span(made.get(), lines)).data();
    if (data_ != nullptr) std::memcpy(begin, data_, size_);
    heap_ = std::move(made);
    data_ = begin;
    size_ = lines * sizeof(Line);
    return true;
  }
  const std::size_t wanted = (least + 4095) / 4096 * 4096;
  void* made = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return false;
  if (data_ != nullptr) std::memcpy(made, data_, size_);
  mapped_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(made), Unmap{wanted});
  heap_.reset();
  data_ = mapped_.get();
  size_ = wanted;
  return true;
}

Warp::Warp(Block& block, std::uint32_t index) : block_(&block), index_(index) {
  const LaunchState& state = block.state();
  const auto& size = state.launch.block;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t thread = index * kLanes + lane;
    if (thread < state.threads) existing_ |= Mask{1} << lane;
    threads_[0][lane] = thread % size[0];
    threads_[1][lane] = thread / size[0] % size[1];
    threads_[2][lane] = thread / size[0] / size[1];
  }
  program_ = state.program;
  steps_ = program_->steps.data();
  const auto constants = state.image->constants();
  // Rows of constants are never written: no destination refers to them.
  bases_[static_cast<unsigned>(Row::Base::kConstant)] = const_cast<std::byte*>(constants.data());
  splits_.reserve(kLanes);
}

bool Warp::start(std::uint32_t function) {
  const FunctionCode& code = program_->functions[function];
  own_memory_ = block_->local(index_);
  splits_.clear();
  Split split;
  split.mask = existing_;
  split.pc = code.entry;
  split.frame.function = function;
  split.frame.stack = code.frame_bytes;
  if (!grow(split.frame, code)) return false;
  exited_ = 0;
  carry_ = 0;
  cluster_arrived_ = 0;
  patience_ = kPatience;
  rotate_ = false;
  splits_.push_back(split);
  return true;
}

bool Warp::grow(const Frame& frame, const FunctionCode& function) {
  const std::uint64_t bytes32 = std::uint64_t{frame.offset32} + function.bytes32;
  const std::uint64_t bytes64 = std::uint64_t{frame.offset64} + function.bytes64;
  const std::uint64_t words = std::uint64_t{frame.predicates} + function.predicates;
  const std::uint64_t limit = kRegisterFileBytesMax / block_->state().warps;
  if (bytes32 + bytes64 + words * sizeof(Mask) > limit) return false;
  return registers32_.resize(bytes32) && registers64_.resize(bytes64) &&
         predicate_words_.resize(words * sizeof(Mask));
}

// The pointers that follow from the frame and from where the register files lie.
void Warp::point() {
  bases_[static_cast<unsigned>(Row::Base::k32)] = registers32_.data() + frame_.offset32;
  bases_[static_cast<unsigned>(Row::Base::k64)] = registers64_.data() + frame_.offset64;
  predicates_ = static_cast<Mask*>(static_cast<void*>(predicate_words_.data())) + frame_.predicates;
}

bool Warp::ready() const {
  return std::any_of(splits_.begin(), splits_.end(),
                     [](const Split& split) { return split.state == Split::State::kReady; });
}

bool Warp::force() {
  Split* lowest = nullptr;
  for (Split& split : splits_) {
    if (split.state != Split::State::kAtWarp) continue;
    if (lowest == nullptr || split.pc < lowest->pc) lowest = &split;
  }
  if (lowest == nullptr) return false;
  lowest->state = Split::State::kReady;
  lowest->forced = true;
  return true;
}

void Warp::save() {
  Split& split = splits_[current_];
  split.mask = active_;
  split.pc = pc_;
  split.frame = frame_;
  split.state = Split::State::kReady;
  split.forced = forced_;
}

// Splits that stand at the same step of the same frame become one. Where alloca took more for some
// of the lanes, it did for all: each has local memory of its own.
void Warp::merge() {
  const auto open = [](const Split& split) {
    return split.state == Split::State::kReady || split.state == Split::State::kAtWarp;
  };
  const auto meet = [](const Split& one, const Split& other) {
    if (one.pc != other.pc) return false;
    Frame frame = other.frame;
    frame.stack = one.frame.stack;
    return one.frame == frame;
  };
  for (std::size_t i = 0; i + 1 < splits_.size(); ++i) {
    if (!open(splits_[i])) continue;
    for (std::size_t j = i + 1; j < splits_.size();) {
      Split& other = splits_[j];
      if (open(other) && meet(splits_[i], other)) {
        splits_[i].mask |= other.mask;
        splits_[i].frame.stack = std::max(splits_[i].frame.stack, other.frame.stack);
        splits_[i].state = Split::State::kReady;
        splits_[i].forced = false;
        other = splits_.back();
        splits_.pop_back();
      } else {
        ++j;
      }
    }
  }
}

// Takes up the split that stands deepest and earliest, so that lanes meet where the layout of their
// function lets them (layout.h); after too much patience, the one that waited longest. False: none
// is ready.
bool Warp::choose() {
  if (splits_.size() > 1) merge();
  std::size_t best = splits_.size();
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    const Split& split = splits_[i];
    if (split.state != Split::State::kReady) continue;
    if (best == splits_.size()) {
      best = i;
      continue;
    }
    const Split& other = splits_[best];
    const bool better = rotate_ ? split.last_run < other.last_run
                        : split.frame.depth != other.frame.depth
                            ? split.frame.depth > other.frame.depth
                            : split.pc < other.pc;
    if (better) best = i;
  }
  if (best == splits_.size()) return false;
  if (rotate_ || splits_.size() == 1) patience_ = kPatience;
  rotate_ = false;
  load(best);
  return true;
}

void Warp::load(std::size_t index) {
  current_ = index;
  Split& split = splits_[index];
  active_ = split.mask;
  pc_ = split.pc;
  frame_ = split.frame;
  forced_ = split.forced;
  split.last_run = ++clock_;
  limit_ = kNoLimit;
  for (const Split& other : splits_) {
    const bool waits = other.state == Split::State::kReady || other.state == Split::State::kAtWarp;
    if (waits && other.frame.depth == frame_.depth && other.pc > pc_) {
      limit_ = std::min(limit_, other.pc);
    }
  }
  point();
}

std::uint32_t Warp::run(std::uint32_t budget) {
  std::uint32_t left = budget;
  yield_ = false;
  polls_ = 0;
  if (!choose()) return 0;
  for (;;) {
    const Step& step = steps_[pc_++];
    Mask lanes = active_;
    if (step.guard != 0) {
      lanes &= predicates_[(step.guard >> 1) - 1] ^ (0 - (step.guard & 1));
    }
    --left;
    if (lanes != 0) {
      const Flow flow = step.handler(*this, step, lanes);
      if (flow != Flow::kNext) [[unlikely]] {
        if (flow == Flow::kFault || left == 0 || yield_ || !choose()) break;
        continue;
      }
    }
    if (pc_ >= limit_) [[unlikely]] {
      save();
      if (left == 0 || !choose()) break;
    } else if (left == 0 || yield_) [[unlikely]] {
      save();
      break;
    }
  }
  return budget - left;
}

Flow Warp::fault(FaultKind kind, Mask lanes, std::uint64_t address) {
  auto& known = block_->fault();
  if (known.has_value()) return Flow::kFault;
  const LaunchState& state = block_->state();
  Fault fault;
  fault.kind = kind;
  fault.kernel = program_->module->functions()[state.function].name;
  fault.line = pc_ == 0 ? 0 : program_->lines[pc_ - 1];
  fault.block = block_->index();
  fault.thread = thread_index(static_cast<unsigned>(std::countr_zero(lanes)) % kLanes);
  fault.address = address;
  known = std::move(fault);
  return Flow::kFault;
}

Flow Warp::jump(std::uint32_t target) {
  const bool back = target < pc_;
  pc_ = target;
  if (!back || splits_.size() == 1) return Flow::kNext;
  if (patience_ > 1) {
    --patience_;
    return Flow::kNext;
  }
  rotate_ = true;
  save();
  return Flow::kSwitch;
}

Flow Warp::diverge(std::uint32_t target, Mask taken) {
  Split other;
  other.mask = taken;
  other.pc = target;
  other.frame = frame_;
  active_ &= ~taken;
  save();
  splits_.push_back(other);
  if (target < pc_) {
    // polled() may have used up all of it.
    if (patience_ > 1) {
      --patience_;
    } else {
      rotate_ = true;
    }
  }
  return Flow::kSwitch;
}

Flow Warp::wait(Mask lanes, Split::State state, std::uint8_t barrier, std::uint32_t destination) {
  Split waiting;
  waiting.mask = lanes;
  waiting.pc = pc_;
  waiting.frame = frame_;
  waiting.state = state;
  waiting.barrier = barrier;
  waiting.destination = destination;
  if (lanes == active_) {
    splits_[current_] = waiting;
  } else {
    active_ &= ~lanes;
    save();
    splits_.push_back(waiting);
  }
  return Flow::kSwitch;
}

Mask Warp::wait_for_lanes(Mask lanes, Mask waiting, Flow& flow) {
  if (forced_) {
    forced_ = false;
    return lanes;
  }
  Split split;
  split.mask = waiting;
  split.pc = pc_ - 1;
  split.frame = frame_;
  split.state = Split::State::kAtWarp;
  flow = Flow::kSwitch;
  if (waiting == active_) {
    splits_[current_] = split;
  } else {
    active_ &= ~waiting;
    save();
    splits_.push_back(split);
  }
  return lanes & ~waiting;
}

Mask Warp::keep(Mask lanes, Mask same, Flow& flow) {
  if (same == lanes) return lanes;
  Split others;
  others.mask = lanes & ~same;
  others.pc = pc_ - 1;
  others.frame = frame_;
  active_ &= ~others.mask;
  save();
  splits_.push_back(others);
  flow = Flow::kSwitch;
  return same;
}

Flow Warp::exit(Mask lanes) {
  exited_ |= lanes;
  active_ &= ~lanes;
  if (active_ == 0) {
    splits_[current_] = splits_.back();
    splits_.pop_back();
  } else {
    save();
  }
  // Whoever waits for lanes of the warp looks again.
  for (Split& split : splits_) {
    if (split.state == Split::State::kAtWarp) split.state = Split::State::kReady;
  }
  if (splits_.empty()) block_->warp_finished();
  block_->lanes_gone();
  return Flow::kSwitch;
}

Flow Warp::call(const CallSite& site, std::uint32_t callee, Mask lanes) {
  const FunctionCode& caller = program_->functions[frame_.function];
  const FunctionCode& code = program_->functions[callee];
  Split inner;
  inner.mask = lanes;
  inner.pc = code.entry;
  inner.frame.offset32 = frame_.offset32 + caller.bytes32;
  inner.frame.offset64 = frame_.offset64 + caller.bytes64;
  inner.frame.predicates = frame_.predicates + caller.predicates;
  inner.frame.local = frame_.stack;
  const std::uint64_t stack =
      std::uint64_t{frame_.stack} + std::max(code.frame_bytes, site.block_bytes);
  inner.frame.depth = frame_.depth + 1;
  inner.frame.function = callee;
  if (inner.frame.depth > kCallDepthMax || stack > block_->state().local_bytes ||
      !grow(inner.frame, code)) {
    return fault(FaultKind::kStackOverflow, lanes);
  }
  inner.frame.stack = static_cast<std::uint32_t>(stack);
  // The first two rows of a frame tell where to return to.
  std::byte* record = registers64_.data() + inner.frame.offset64;
  const std::uint64_t place = std::uint64_t{frame_.function} << 32 | pc_;
  const std::uint64_t stacks = std::uint64_t{frame_.stack} << 32 | frame_.local;
  for_lanes(lanes, [&](unsigned lane) {
    put<std::uint64_t>(record, lane, place);
    put<std::uint64_t>(record + kRow64Bytes, lane, stacks);
  });
  if (patience_ > 1) --patience_;
  if (lanes == active_) {
    inner.last_run = splits_[current_].last_run;
    splits_[current_] = inner;
  } else {
    active_ &= ~lanes;
    save();
    splits_.push_back(inner);
  }
  return Flow::kSwitch;
}

// Lanes that came from the same place go back together.
Flow Warp::give_back(Mask lanes) {
  if (frame_.depth == 0) return exit(lanes);
  const std::byte* record = registers64_.data() + frame_.offset64;
  active_ &= ~lanes;
  const Frame own = frame_;
  const bool whole = active_ == 0;
  if (!whole) save();
  bool reused = false;
  while (lanes != 0) {
    const auto first = static_cast<unsigned>(std::countr_zero(lanes));
    const auto place = get<std::uint64_t>(record, first);
    const auto stacks = get<std::uint64_t>(record + kRow64Bytes, first);
    const Mask together = which_lanes(lanes, [&](unsigned lane) {
      return get<std::uint64_t>(record, lane) == place &&
             get<std::uint64_t>(record + kRow64Bytes, lane) == stacks;
    });
    lanes &= ~together;
    const FunctionCode& caller = program_->functions[place >> 32];
    Split outer;
    outer.mask = together;
    outer.pc = static_cast<std::uint32_t>(place);
    outer.frame.offset32 = own.offset32 - caller.bytes32;
    outer.frame.offset64 = own.offset64 - caller.bytes64;
    outer.frame.predicates = own.predicates - caller.predicates;
    outer.frame.local = static_cast<std::uint32_t>(stacks);
    outer.frame.stack = static_cast<std::uint32_t>(stacks >> 32);
    outer.frame.depth = own.depth - 1;
    outer.frame.function = static_cast<std::uint32_t>(place >> 32);
    if (whole && !reused) {
      outer.last_run = splits_[current_].last_run;
      splits_[current_] = outer;
      reused = true;
    } else {
      splits_.push_back(outer);
    }
  }
  return Flow::kSwitch;
}

}  // namespace flyt::ptx
