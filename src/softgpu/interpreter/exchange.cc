// Between the lanes of a warp: shfl, vote, match, redux, activemask, elect.
#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/operators.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

constexpr std::uint32_t kNoRow = ~std::uint32_t{0};

// The lanes that may go on: those whose partners (their member mask) are all here. The others
// wait. Forms without .sync have no mask and go on as they are.
Mask meet(Warp& warp, const Step& step, Mask lanes, Flow& flow) {
  flow = Flow::kNext;
  if (step.e.value == kNoRow) return lanes;
  const std::byte* members = warp.row(step.e);
  return warp.meet(lanes, flow, [&](unsigned lane) { return get<Mask>(members, lane); });
}

Mask members_of(Warp& warp, const Step& step, unsigned lane, Mask here) {
  if (step.e.value == kNoRow) return here;
  return get<Mask>(warp.row(step.e), lane) & here;
}

// value: mode (0 up, 1 down, 2 bfly, 3 idx).
Flow shuffle(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  lanes = meet(warp, step, lanes, flow);
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const std::byte* c = warp.row(step.c);
  std::uint32_t out[kLanes];
  Mask in_range = 0;
  for_lanes(lanes, [&](unsigned lane) {
    const auto amount = static_cast<std::int32_t>(get<std::uint32_t>(b, lane) & 31);
    const auto control = get<std::uint32_t>(c, lane);
    const auto segment = static_cast<std::int32_t>(control >> 8 & 31);
    const auto clamp = static_cast<std::int32_t>(control & 31);
    const auto own = static_cast<std::int32_t>(lane);
    const std::int32_t least = own & segment;
    const std::int32_t most = least | (clamp & ~segment & 31);
    std::int32_t from = own;
    bool valid = false;
    if (step.value == 0) {
      from = own - amount;
      valid = from >= most;
    } else if (step.value == 1) {
      from = own + amount;
      valid = from <= most;
    } else if (step.value == 2) {
      from = own ^ amount;
      valid = from <= most;
    } else {
      from = least | (amount & ~segment & 31);
      valid = from <= most;
    }
    if (!valid) from = own;
    if (valid) in_range |= Mask{1} << lane;
    out[lane] = get<std::uint32_t>(a, static_cast<unsigned>(from));
  });
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) { put<std::uint32_t>(d, lane, out[lane]); });
  warp.set_predicate(step.p, lanes, in_range);
  return flow;
}

enum class Vote : std::uint8_t { kAll, kAny, kUniform, kBallot };

Flow vote(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  lanes = meet(warp, step, lanes, flow);
  const Mask yes = warp.predicate_value(step.q);
  const auto kind = static_cast<Vote>(step.value);
  Mask bits = 0;
  for_lanes(lanes, [&](unsigned lane) {
    const Mask members = members_of(warp, step, lane, lanes);
    const Mask agree = yes & members;
    bool result = agree == members;
    if (kind == Vote::kBallot) return put<std::uint32_t>(warp.row(step.d), lane, agree);
    if (kind == Vote::kAny) result = agree != 0;
    if (kind == Vote::kUniform) result = agree == members || agree == 0;
    if (result) bits |= Mask{1} << lane;
  });
  if (kind != Vote::kBallot) warp.set_predicate(step.p, lanes, bits);
  return flow;
}

// Those of `some` that name the same members, which the first of them is among.
Mask alike(Warp& warp, const Step& step, Mask some, Mask members, Mask here) {
  return which_lanes(some, [&](unsigned lane) {
    return (members_of(warp, step, lane, here) | Mask{1} << lane) == members;
  });
}

// value: 0 any, 1 all.
template <class T>
Flow match(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  lanes = meet(warp, step, lanes, flow);
  const std::byte* a = warp.row(step.a);
  Mask all = 0;
  Mask out[kLanes];
  for (Mask left = lanes; left != 0;) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    const T value = get<T>(a, lane);
    const Mask members = members_of(warp, step, lane, lanes) | Mask{1} << lane;
    const Mask equal =
        which_lanes(members, [&](unsigned other) { return get<T>(a, other) == value; });
    const Mask result = step.value == 0 ? equal : equal == members ? members : 0;
    const Mask same = alike(warp, step, left & equal, members, lanes);
    if (equal == members) all |= same;
    for_lanes(same, [&](unsigned each) { out[each] = result; });
    left &= ~same;
  }
  for_lanes(lanes, [&](unsigned lane) { put<Mask>(warp.row(step.d), lane, out[lane]); });
  warp.set_predicate(step.p, lanes, all);
  return flow;
}

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
};
struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};

template <class Op, class T>
Flow reduce(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  lanes = meet(warp, step, lanes, flow);
  const std::byte* a = warp.row(step.a);
  T out[kLanes];
  for (Mask left = lanes; left != 0;) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    T total = get<T>(a, lane);
    const Mask members = members_of(warp, step, lane, lanes) | Mask{1} << lane;
    const Mask others = members & ~(Mask{1} << lane);
    for_lanes(others, [&](unsigned other) { total = Op::apply(total, get<T>(a, other)); });
    const Mask same = alike(warp, step, left & members, members, lanes);
    for_lanes(same, [&](unsigned each) { out[each] = total; });
    left &= ~same;
  }
  for_lanes(lanes, [&](unsigned lane) { put<T>(warp.row(step.d), lane, out[lane]); });
  return flow;
}

// d: the leader; p: whether this lane is it.
Flow elect(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  lanes = meet(warp, step, lanes, flow);
  Mask leaders = 0;
  for_lanes(lanes, [&](unsigned lane) {
    const Mask members = members_of(warp, step, lane, lanes);
    const auto leader = static_cast<std::uint32_t>(std::countr_zero(members | Mask{1} << lane));
    const auto first = static_cast<std::uint32_t>(std::countr_zero(members));
    put<std::uint32_t>(warp.row(step.d), lane, members == 0 ? leader : first);
    if (first == lane) leaders |= Mask{1} << lane;
  });
  warp.set_predicate(step.p, lanes, leaders);
  return flow;
}

Flow active_mask(Warp& warp, const Step& step, Mask lanes) {
  each_lane<std::uint32_t>(warp.row(step.d), lanes, [&](unsigned) { return lanes; });
  return Flow::kNext;
}

bool member_mask(Selector& s, bool sync, std::size_t index, Row& row) {
  row = Row{kNoRow};
  return !sync || s.source(index, Type::kB32, row);
}

bool select_shuffle(Selector& s) {
  Step step;
  step.handler = &shuffle;
  const bool sync = s.take("sync"_n);
  step.value = s.take_one({"up"_n, "down"_n, "bfly"_n, "idx"_n});
  Type type;
  if (step.value < 0 || !s.take_type(type) || type_bytes(type) != 4) return s.refuse_form();
  step.p = kNoPredicate;
  const bool pair = s.operand(1).paired;
  const std::size_t first = pair ? 2 : 1;
  const std::size_t count = first + 3 + (sync ? 1 : 0);
  if (!s.need(count, count)) return false;
  if (pair && !s.predicate_destination(s.operand(1), step.p)) return false;
  return s.destination(0, type, step.d) && s.source(first, type, step.a) &&
         s.source(first + 1, Type::kB32, step.b) && s.source(first + 2, Type::kB32, step.c) &&
         member_mask(s, sync, first + 3, step.e) && s.emit(step);
}

bool select_vote(Selector& s) {
  Step step;
  step.handler = &vote;
  const bool sync = s.take("sync"_n);
  step.value = s.take_one({"all"_n, "any"_n, "uni"_n, "ballot"_n});
  Type type;
  const std::size_t count = sync ? 3 : 2;
  if (step.value < 0 || !s.take_type(type)) return s.refuse_form();
  if (!s.need(count, count) || !s.predicate_source(s.operand(1), step.q)) return false;
  const bool ballot = step.value == static_cast<std::int64_t>(Vote::kBallot);
  if (ballot ? type != Type::kB32 : type != Type::kPred) return s.refuse_form();
  const bool target =
      ballot ? s.destination(0, Type::kB32, step.d) : s.predicate_destination(s.operand(0), step.p);
  return target && member_mask(s, sync, 2, step.e) && s.emit(step);
}

bool select_match(Selector& s) {
  Step step;
  step.value = s.take_one({"any"_n, "all"_n});
  Type type;
  if (step.value < 0 || !s.take("sync"_n) || !s.take_type(type)) return s.refuse_form();
  if (type_bytes(type) != 4 && type_bytes(type) != 8) return s.refuse_form();
  step.handler = type_bytes(type) == 4 ? &match<std::uint32_t> : &match<std::uint64_t>;
  step.p = kNoPredicate;
  const bool pair = s.operand(1).paired;
  const std::size_t first = pair ? 2 : 1;
  if (!s.need(first + 2, first + 2)) return false;
  if (pair && !s.predicate_destination(s.operand(1), step.p)) return false;
  return s.destination(0, Type::kB32, step.d) && s.source(first, type, step.a) &&
         member_mask(s, true, first + 1, step.e) && s.emit(step);
}

bool select_reduce(Selector& s) {
  Step step;
  using U = std::uint32_t;
  const int op = s.take_one({"add"_n, "min"_n, "max"_n, "and"_n, "or"_n, "xor"_n});
  Type type;
  if (!s.take("sync"_n) || !s.take_type(type)) return s.refuse_form();
  const bool sign = type == Type::kS32;
  if (!sign && type != Type::kU32 && type != Type::kB32) return s.refuse_form();
  switch (op) {
    case 0:
      step.handler = &reduce<Add, U>;
      break;
    case 1:
      step.handler = sign ? &reduce<Minimum, std::int32_t> : &reduce<Minimum, U>;
      break;
    case 2:
      step.handler = sign ? &reduce<Maximum, std::int32_t> : &reduce<Maximum, U>;
      break;
    case 3:
      step.handler = &reduce<And, U>;
      break;
    case 4:
      step.handler = &reduce<Or, U>;
      break;
    case 5:
      step.handler = &reduce<Xor, U>;
      break;
    default:
      return s.refuse_form();
  }
  return s.need(3, 3) && s.destination(0, type, step.d) && s.source(1, type, step.a) &&
         member_mask(s, true, 2, step.e) && s.emit(step);
}

bool select_elect(Selector& s) {
  Step step;
  step.handler = &elect;
  if (!s.take("sync"_n) || !s.need(3, 3) || !s.operand(1).paired) return s.refuse_form();
  return s.destination(0, Type::kB32, step.d) && s.predicate_destination(s.operand(1), step.p) &&
         member_mask(s, true, 2, step.e) && s.emit(step);
}

bool select_active(Selector& s) {
  Step step;
  step.handler = &active_mask;
  Type type;
  return s.take_type(type) && s.need(1, 1) && s.destination(0, Type::kB32, step.d) && s.emit(step);
}

}  // namespace

bool select_warp(Selector& s) {
  switch (s.opcode()) {
    case "shfl"_n:
      return select_shuffle(s);
    case "vote"_n:
      return select_vote(s);
    case "match"_n:
      return select_match(s);
    case "redux"_n:
      return select_reduce(s);
    case "activemask"_n:
      return select_active(s);
    case "elect"_n:
      return select_elect(s);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
