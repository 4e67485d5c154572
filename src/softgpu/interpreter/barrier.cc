// bar, barrier, membar, fence: PTX ISA, "Parallel Synchronization".
#include <atomic>

#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/lanes.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

enum class Action : std::uint8_t { kSync, kArrive, kReduce };

// value: Action | Reduction << 8. a: the barrier, b: the threads (0: all), q: the predicate to
// reduce, d or p: where the result goes.
Flow meet_at_barrier(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const auto first = static_cast<unsigned>(std::countr_zero(lanes));
  const auto barrier = get<std::uint32_t>(a, first);
  const auto wanted = get<std::uint32_t>(b, first);
  if (barrier >= kBarriers || wanted % kLanes != 0 || wanted > kThreadsPerBlockMax) {
    return warp.fault(FaultKind::kIllegalInstruction, lanes);
  }
  Flow flow = Flow::kNext;
  lanes = warp.keep(lanes,
                    which_lanes(lanes,
                                [&](unsigned lane) {
                                  return get<std::uint32_t>(a, lane) == barrier &&
                                         get<std::uint32_t>(b, lane) == wanted;
                                }),
                    flow);
  const auto action = static_cast<Action>(step.value & 0xff);
  const auto reduction = static_cast<Block::Reduction>(step.value >> 8);
  const Mask values = action == Action::kReduce ? warp.predicate_value(step.q) : 0;
  if (action == Action::kArrive) {
    warp.block().arrive(warp, barrier, lanes, wanted, reduction, values);
    return flow == Flow::kNext ? flow : warp.settle();
  }
  const bool counts = reduction == Block::Reduction::kPopulation;
  flow = warp.wait(lanes, Split::State::kAtBarrier, static_cast<std::uint8_t>(barrier),
                   counts ? step.d.value : step.p);
  warp.block().arrive(warp, barrier, lanes, wanted, reduction, values);
  return flow;
}

Flow meet_in_warp(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  Flow flow = Flow::kNext;
  warp.meet(lanes, flow, [&](unsigned lane) { return get<Mask>(a, lane); });
  return flow;
}

Flow arrive_in_cluster(Warp& warp, const Step&, Mask lanes) {
  warp.block().cluster().arrive(warp, lanes);
  return Flow::kNext;
}

Flow wait_in_cluster(Warp& warp, const Step&, Mask lanes) {
  if (warp.block().cluster().may_pass(warp, lanes)) return Flow::kNext;
  return warp.wait(lanes, Split::State::kAtCluster, 0, 0);
}

Flow order_memory(Warp&, const Step&, Mask) {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer knows no fences.
  static std::atomic<int> order{0};  // lint: allow(globals): whatever all threads change will do
  order.fetch_add(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  return Flow::kNext;
}

bool select_warp_barrier(Selector& s) {
  Step step;
  step.handler = &meet_in_warp;
  return s.take("sync"_n) && s.need(1, 1) && s.source(0, Type::kB32, step.a) && s.emit(step);
}

bool select_cluster_barrier(Selector& s) {
  s.take("aligned"_n);
  s.take_one({"acquire"_n, "release"_n, "relaxed"_n});
  Step step;
  const int action = s.take_one({"arrive"_n, "wait"_n});
  if (action < 0) return s.refuse_form();
  step.handler = action == 0 ? &arrive_in_cluster : &wait_in_cluster;
  return s.need(0, 0) && s.emit(step);
}

// bar.red.popc.u32 d, a{, b}, {!}p   bar.red.and.pred p, a{, b}, {!}q
bool select_reduction(Selector& s, Step step) {
  const int op = s.take_one({"popc"_n, "and"_n, "or"_n});
  Type type;
  if (op < 0) return s.refuse_form();
  if (!s.take_type(type) || !s.need(3, 4)) return false;
  step.value = static_cast<std::int64_t>(Action::kReduce) | static_cast<std::int64_t>(op + 1) << 8;
  const bool counts = op == 0;
  if (counts ? !s.destination(0, Type::kU32, step.d)
             : !s.predicate_destination(s.operand(0), step.p)) {
    return false;
  }
  const std::size_t last = s.operand_count() - 1;
  if (!s.source(1, Type::kU32, step.a) || !s.predicate_source(s.operand(last), step.q)) {
    return false;
  }
  const bool all = last == 2;
  return (all ? s.constant(0, 4, step.b) : s.source(2, Type::kU32, step.b)) && s.emit(step);
}

bool select_block_barrier(Selector& s) {
  s.take("cta"_n);
  s.take("aligned"_n);
  Step step;
  step.handler = &meet_at_barrier;
  const int action = s.take_one({"sync"_n, "arrive"_n, "red"_n});
  if (action < 0) return s.refuse_form();
  if (action == 2) return select_reduction(s, step);
  step.value = action;
  if (!s.need(action == 1 ? 2 : 1, 2) || !s.source(0, Type::kU32, step.a)) return false;
  const bool all = s.operand_count() == 1;
  return (all ? s.constant(0, 4, step.b) : s.source(1, Type::kU32, step.b)) && s.emit(step);
}

}  // namespace

bool select_barrier(Selector& s) {
  const std::uint32_t opcode = s.opcode();
  if (opcode == "bar"_n || opcode == "barrier"_n) {
    if (s.take("warp"_n)) return select_warp_barrier(s);
    if (s.take("cluster"_n)) return select_cluster_barrier(s);
    return select_block_barrier(s);
  }
  // membar and fence in all their forms: everything is ordered.
  while (s.take_next().has_value()) continue;
  Step step;
  step.handler = &order_memory;
  return s.need(0, 2) && s.emit(step);
}

}  // namespace flyt::ptx
