// cp.async and mbarrier: PTX ISA, "Asynchronous copy" and "mbarrier". Copies are done at once, so
// that waiting for them never waits.
#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/barrier_object.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

enum class Do : std::uint8_t {
  kInit,
  kInvalidate,
  kArrive,
  kDrop,
  kExpect,
  kComplete,
  kTest,
  kTestParity,
  kCount
};

// One mbarrier operation of one lane. b: a count, bytes, a state or a parity, as Do says;
// extra bit 0: arrive announces b bytes first, its count is 1.
Flow operate(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const auto what = static_cast<Do>(step.q);
  Access<Space::kGeneric> access(warp, 8, true);
  Mask done = 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::byte* place =
        access.at(lane, get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value));
    if (place == nullptr) return access.failed();
    const Phase before = load_phase(place);
    const std::uint64_t operand =
        what == Do::kTest ? get<std::uint64_t>(b, lane) : get<std::uint32_t>(b, lane);
    Phase after = before;
    bool passed = false;
    switch (what) {
      case Do::kInit:
        after = Phase::make(0, 0, operand, operand);
        break;
      case Do::kInvalidate:
        // The phase stays: lanes that have not yet looked whether theirs has ended still see it,
        // where the program ends the barrier without waiting for them.
        break;
      case Do::kArrive:
      case Do::kDrop: {
        const bool announces = (step.extra & 1) != 0;
        const std::uint64_t count = announces ? 1 : operand;
        if (announces) after = after.announced(operand);
        after = after.arrived(count, what == Do::kDrop ? count : 0).settled();
        break;
      }
      case Do::kExpect:
        after = after.announced(operand);
        break;
      case Do::kComplete:
        after = after.announced(0 - operand).settled();
        break;
      case Do::kTest:
        passed = Phase{operand}.parity() != before.parity();
        break;
      case Do::kTestParity:
        passed = (operand & 1) != before.parity();
        break;
      case Do::kCount:
        break;
    }
    store_phase(place, after);
    if (passed) done |= Mask{1} << lane;
    if (what == Do::kArrive || what == Do::kDrop) {
      put<std::uint64_t>(warp.row(step.d), lane, before.word);
    }
    if (what == Do::kTest || what == Do::kTestParity) {
      warp.set_predicate(step.p, Mask{1} << lane, done);
      if (!passed) {
        warp.polled();
        warp.yield();
      }
    }
  }
  return Flow::kNext;
}

Flow pending_count(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  each_lane<std::uint32_t>(warp.row(step.d), lanes, [&](unsigned lane) {
    return static_cast<std::uint32_t>(Phase{get<std::uint64_t>(a, lane)}.pending());
  });
  return Flow::kNext;
}

// The address operand of an mbarrier instruction, as a generic address.
bool barrier_address(Selector& s, const Operand& operand, Space space, Step& step) {
  if (!s.address(operand, Space::kShared, step.a, step.value)) return false;
  if (space == Space::kShared) step.value += static_cast<std::int64_t>(kSharedWindow);
  return true;
}

bool select_arrive(Selector& s, Step step, Space space, bool drop) {
  step.q = static_cast<std::uint32_t>(drop ? Do::kDrop : Do::kArrive);
  if (s.take("expect_tx"_n)) step.extra |= 1;
  s.take("noComplete"_n);
  if (!s.take("b64"_n) || !s.need(1, 3)) return s.refuse_form();
  // The state may be left out, or be a sink, for barriers of other blocks.
  const bool state = !s.operand(0).memory;
  const std::size_t first = state ? 1 : 0;
  if (state) {
    if (!s.destination(0, Type::kB64, step.d)) return false;
  } else {
    step.d = s.temporary(8);
  }
  if (!barrier_address(s, s.operand(first), space, step)) return false;
  const bool counted = s.operand_count() > first + 1;
  if ((step.extra & 1) != 0 && !counted) return s.refuse_form();
  return (counted ? s.source(first + 1, Type::kB32, step.b) : s.constant(1, 4, step.b)) &&
         s.emit(step);
}

bool select_test(Selector& s, Step step, Space space) {
  const bool parity = s.take("parity"_n);
  step.q = static_cast<std::uint32_t>(parity ? Do::kTestParity : Do::kTest);
  if (!s.take("b64"_n) || !s.need(3, 4)) return s.refuse_form();
  return s.predicate_destination(s.operand(0), step.p) &&
         barrier_address(s, s.operand(1), space, step) &&
         s.source(2, parity ? Type::kB32 : Type::kB64, step.b) && s.emit(step);
}

bool select_barrier_object(Selector& s) {
  Step step;
  step.handler = &operate;
  const int what = s.take_one({"init"_n, "inval"_n, "arrive"_n, "arrive_drop"_n, "expect_tx"_n,
                               "complete_tx"_n, "test_wait"_n, "try_wait"_n, "pending_count"_n});
  s.take_one({"release"_n, "acquire"_n, "relaxed"_n});
  s.take_memory_hints();
  const Space space = take_space(s);
  if (space != Space::kGeneric && space != Space::kShared) return s.refuse_form();
  switch (what) {
    case 0:
    case 4:
    case 5:
      step.q = static_cast<std::uint32_t>(what == 0   ? Do::kInit
                                          : what == 4 ? Do::kExpect
                                                      : Do::kComplete);
      if (!s.take("b64"_n) && what == 0) return s.refuse_form();
      return s.need(2, 2) && barrier_address(s, s.operand(0), space, step) &&
             s.source(1, Type::kB32, step.b) && s.emit(step);
    case 1:
      step.q = static_cast<std::uint32_t>(Do::kInvalidate);
      return s.take("b64"_n) && s.need(1, 1) && s.constant(0, 4, step.b) &&
             barrier_address(s, s.operand(0), space, step) && s.emit(step);
    case 2:
    case 3:
      return select_arrive(s, step, space, what == 3);
    case 6:
    case 7:
      return select_test(s, step, space);
    case 8:
      step.handler = &pending_count;
      return s.take("b64"_n) && s.need(2, 2) && s.destination(0, Type::kB32, step.d) &&
             s.source(1, Type::kB64, step.a) && s.emit(step);
  }
  return s.refuse_form();
}

// cp.async: q bytes, of which the first c (or all) come from the source, the rest is zero.
Flow copy_small(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const std::byte* c = warp.row(step.c);
  Access<Space::kShared> to(warp, step.q, true);
  Access<Space::kGeneric> from(warp, step.q, false);
  const Mask ignored = step.p == kNoPredicate ? 0 : warp.predicate_value(step.p);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::uint32_t bytes = get<std::uint32_t>(c, lane);
    if (bytes > step.q) bytes = step.q;
    if ((ignored >> lane & 1) != 0) bytes = 0;
    std::byte* place =
        to.at(lane, get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value));
    if (place == nullptr) return to.failed();
    std::byte buffer[16] = {};
    if (bytes != 0) {
      const std::byte* source =
          from.at(lane, get<std::uint64_t>(b, lane) +
                            static_cast<std::uint64_t>(static_cast<std::int32_t>(step.extra)));
      if (source == nullptr) return from.failed();
      std::memcpy(buffer, source, bytes);
    }
    std::memcpy(place, buffer, step.q);
  }
  return Flow::kNext;
}

bool select_copy_small(Selector& s) {
  s.take("ca"_n);
  s.take("cg"_n);
  const bool hinted = s.take("L2::cache_hint"_n);
  s.take_memory_hints();
  if (!(s.take("shared"_n) || s.take("shared::cta"_n)) || !s.take("global"_n)) {
    return s.refuse_form();
  }
  std::uint64_t bytes = 0;
  const std::size_t count = s.operand_count() - (hinted ? 1 : 0);
  if (count < 3 || count > 4 || !s.integer(s.operand(2), bytes)) return s.refuse_form();
  if (bytes != 4 && bytes != 8 && bytes != 16) return s.refuse_form();
  Step step;
  step.handler = &copy_small;
  step.q = static_cast<std::uint32_t>(bytes);
  step.p = kNoPredicate;
  std::int64_t offset = 0;
  if (!s.address(s.operand(0), Space::kShared, step.a, step.value) ||
      !s.address(s.operand(1), Space::kGlobal, step.b, offset)) {
    return false;
  }
  if (offset != static_cast<std::int32_t>(offset)) {
    return s.refuse("has an offset that is too large");
  }
  step.extra = static_cast<std::uint32_t>(offset);
  const Register* shape = count == 4 ? s.register_of(s.operand(3)) : nullptr;
  if (shape != nullptr && shape->kind == Register::Kind::kPredicate) {
    return s.predicate_source(s.operand(3), step.p) && s.constant(bytes, 4, step.c) && s.emit(step);
  }
  return (count == 4 ? s.source(3, Type::kB32, step.c) : s.constant(bytes, 4, step.c)) &&
         s.emit(step);
}

bool select_copy(Selector& s) {
  if (s.has("bulk"_n)) return select_bulk(s);
  if (!s.take("async"_n)) return s.refuse_form();
  if (s.take("commit_group"_n) || s.take("wait_all"_n)) return s.need(0, 0);
  if (s.take("wait_group"_n)) return s.need(1, 1);
  if (s.take("mbarrier"_n)) {
    // Without .noinc the pending count goes up and down again.
    Step step;
    step.handler = &operate;
    step.q = static_cast<std::uint32_t>(Do::kArrive);
    const bool counts = s.take("noinc"_n);
    const bool arrives = s.take("arrive"_n);
    const Space space = take_space(s);
    if (!arrives || !s.take("b64"_n) || !s.need(1, 1)) return s.refuse_form();
    step.d = s.temporary(8);
    if (!counts) step.q = static_cast<std::uint32_t>(Do::kCount);
    return barrier_address(s, s.operand(0), space, step) && s.constant(1, 4, step.b) &&
           s.emit(step);
  }
  return select_copy_small(s);
}

}  // namespace

bool select_async(Selector& s) {
  return s.opcode() == "cp"_n ? select_copy(s) : select_barrier_object(s);
}

}  // namespace flyt::ptx
