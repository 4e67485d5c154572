// Addresses: cvta, isspacep, mapa, and the frame of a function; hints that do nothing.
#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/select.h"
#include "softgpu/ptx/types.h"

namespace flyt::ptx {
namespace {

struct Window {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

Window window_of(Space space) {
  if (space == Space::kShared) return {kSharedWindow, kSharedWindowBytes};
  if (space == Space::kLocal) return {kLocalWindow, kLocalWindowBytes};
  if (space == Space::kParam) return {kParameterWindow, kParameterWindowBytes};
  return {};
}

// value: the window; extra: 1 where the address leaves the generic space.
Flow convert_address(Warp& warp, const Step& step, Mask lanes) {
  const Window window = window_of(static_cast<Space>(step.value));
  const std::byte* a = warp.row(step.a);
  each_lane<std::uint64_t>(warp.row(step.d), lanes, [&](unsigned lane) {
    const auto address = get<std::uint64_t>(a, lane);
    const bool inside = address - window.begin < window.bytes;
    if (step.extra != 0) return inside ? address - window.begin : address;
    // Addresses in frames are generic from the start.
    const bool generic = inside || address - kLocalWindow < kLocalWindowBytes;
    return generic ? address : address + window.begin;
  });
  return Flow::kNext;
}

bool select_convert_address(Selector& s) {
  Step step;
  step.extra = s.take("to"_n) ? 1 : 0;
  const Space space = take_space(s);
  step.value = static_cast<std::int64_t>(space);
  Type type;
  if (!s.take_type(type) || !s.need(2, 2)) return false;
  if (type_bytes(type) != 8 || space == Space::kGeneric) return s.refuse_form();
  step.handler = window_of(space).bytes == 0 ? &copy_row64 : &convert_address;
  Operand operand = s.operand(1);
  // cvta.shared.u64 d, variable+4 takes the address itself.
  return s.destination(0, type, step.d) && s.source(operand, type, step.a) && s.emit(step);
}

Flow is_in_space(Warp& warp, const Step& step, Mask lanes) {
  const auto space = static_cast<Space>(step.value);
  const std::byte* a = warp.row(step.a);
  const auto in = [](Space which, std::uint64_t address) {
    const Window window = window_of(which);
    return address - window.begin < window.bytes;
  };
  warp.set_predicate(step.p, lanes, which_lanes(lanes, [&](unsigned lane) {
                       const auto address = get<std::uint64_t>(a, lane);
                       if (window_of(space).bytes != 0) {
                         // The block's own shared memory only, unless the whole cluster is asked
                         // for.
                         if (space == Space::kShared && step.extra == 0)
                           return address - kSharedWindow < kSharedStride;
                         return in(space, address);
                       }
                       return !in(Space::kShared, address) && !in(Space::kLocal, address) &&
                              !in(Space::kParam, address) &&
                              (space == Space::kConst) == warp.block().is_constant(address);
                     }));
  return Flow::kNext;
}

bool select_is_space(Selector& s) {
  Step step;
  step.handler = &is_in_space;
  step.extra = s.has("shared::cluster"_n) ? 1 : 0;
  step.value = static_cast<std::int64_t>(take_space(s));
  if (!s.need(2, 2) || !s.predicate_destination(s.operand(0), step.p)) return false;
  if (s.register_bytes(s.operand(1)) != 4) {
    return s.source(1, Type::kB64, step.a) && s.emit(step);
  }
  Step widen;
  widen.handler = &widen_address;
  widen.d = step.a = s.temporary(8);
  return s.source(1, Type::kB32, widen.a) && s.emit_unguarded(widen) && s.emit(step);
}

// mapa: the same place in another block of the cluster. extra: 1 for generic addresses.
template <class T>
Flow map_to_rank(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  each_lane<T>(warp.row(step.d), lanes, [&](unsigned lane) {
    const std::uint64_t window = step.extra != 0 ? kSharedWindow : 0;
    const std::uint64_t offset = (get<T>(a, lane) - window) & (kSharedStride - 1);
    const std::uint64_t rank = get<std::uint32_t>(b, lane);
    return static_cast<T>(window + ((rank & 63) + 1) * kSharedStride + offset);
  });
  return Flow::kNext;
}

bool select_map(Selector& s) {
  Step step;
  step.extra = s.take("shared::cluster"_n) ? 0 : 1;
  Type type;
  if (!s.take_type(type) || !s.need(3, 3)) return false;
  const bool wide = type_bytes(type) == 8;
  if (!wide && (type_bytes(type) != 4 || step.extra != 0)) return s.refuse_form();
  step.handler = wide ? &map_to_rank<std::uint64_t> : &map_to_rank<std::uint32_t>;
  return s.destination(0, type, step.d) && s.source(1, type, step.a) &&
         s.source(2, Type::kB32, step.b) && s.emit(step);
}

template <class T>
Flow rank_of(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::uint32_t own = warp.block().rank();
  each_lane<std::uint32_t>(warp.row(step.d), lanes, [&](unsigned lane) {
    const std::uint64_t place = get<T>(a, lane) - (step.extra != 0 ? kSharedWindow : 0);
    const auto field = static_cast<std::uint32_t>(place / kSharedStride) & 63;
    return field == 0 ? own : field - 1;
  });
  return Flow::kNext;
}

bool select_rank(Selector& s) {
  Step step;
  step.extra = s.take("shared::cluster"_n) ? 0 : 1;
  Type type;
  if (!s.take_type(type) || !s.need(2, 2)) return false;
  const bool wide = type_bytes(type) == 8;
  if (!wide && (type_bytes(type) != 4 || step.extra != 0)) return s.refuse_form();
  step.handler = wide ? &rank_of<std::uint64_t> : &rank_of<std::uint32_t>;
  return s.destination(0, Type::kB32, step.d) && s.source(1, type, step.a) && s.emit(step);
}

// alloca: takes room behind the frame; all lanes of a split take the most that one of them wants.
Flow allocate_stack(Warp& warp, const Step& step, Mask lanes) {
  std::uint64_t most = 0;
  const std::byte* a = warp.row(step.a);
  for_lanes(lanes, [&](unsigned lane) {
    const auto bytes = get<std::uint64_t>(a, lane);
    if (bytes > most) most = bytes;
  });
  Frame& frame = warp.frame();
  const auto align = static_cast<std::uint64_t>(step.value);
  const std::uint64_t begin = (frame.stack + align - 1) / align * align;
  const std::uint64_t limit = warp.block().state().local_bytes;
  if (most > limit || begin > limit - most) {
    return warp.fault(FaultKind::kStackOverflow, lanes, 0);
  }
  frame.stack = static_cast<std::uint32_t>(align_up(begin + most, warp.program().frame_align));
  each_lane<std::uint64_t>(warp.row(step.d), lanes, [&](unsigned) { return kLocalWindow + begin; });
  return Flow::kNext;
}

bool select_allocate(Selector& s) {
  Step step;
  Type type;
  if (!s.take_type(type) || !s.need(2, 3)) return false;
  std::uint64_t align = 16;
  if (s.operand_count() == 3 && !s.integer(s.operand(2), align)) return false;
  if (!std::has_single_bit(align) || align > kAlignMax) return s.refuse_form();
  step.value = static_cast<std::int64_t>(align < 16 ? 16 : align);
  step.handler = &allocate_stack;
  s.references().unbounded_stack = true;
  return type_bytes(type) == 8
             ? s.destination(0, type, step.d) && s.source(1, type, step.a) && s.emit(step)
             : s.refuse_form();
}

// stacksave, stackrestore: the frame's end as an address, in 32 bits its lower half, an offset.
static_assert(static_cast<std::uint32_t>(kLocalWindow) == 0);

template <typename T>
Flow save_stack(Warp& warp, const Step& step, Mask lanes) {
  each_lane<T>(warp.row(step.d), lanes,
               [&](unsigned) { return static_cast<T>(kLocalWindow + warp.frame().stack); });
  return Flow::kNext;
}

// Gives back what alloca took since. Lanes of a split have one end: the highest that one of them
// wants, and lanes that do not take part want what there is.
template <typename T>
Flow restore_stack(Warp& warp, const Step& step, Mask lanes) {
  if (lanes != warp.active()) return Flow::kNext;
  const std::byte* a = warp.row(step.a);
  std::uint32_t most = 0;
  for_lanes(lanes, [&](unsigned lane) {
    most = std::max(most, static_cast<std::uint32_t>(get<T>(a, lane)));
  });
  Frame& frame = warp.frame();
  if (most >= frame.local && most < frame.stack) frame.stack = most;
  return Flow::kNext;
}

bool select_stack(Selector& s, bool saves) {
  Step step;
  Type type;
  if (!s.take_type(type) || !s.need(1, 1)) return false;
  const bool wide = type_bytes(type) == 8;
  if (!wide && type_bytes(type) != 4) return s.refuse_form();
  if (saves) {
    step.handler = wide ? &save_stack<std::uint64_t> : &save_stack<std::uint32_t>;
    return s.destination(0, type, step.d) && s.emit(step);
  }
  step.handler = wide ? &restore_stack<std::uint64_t> : &restore_stack<std::uint32_t>;
  return s.source(0, type, step.a) && s.emit(step);
}

bool select_nothing(Selector& s) {
  while (s.take_next().has_value()) continue;
  return s.need(1, 3);
}

bool select_policy(Selector& s) {
  while (s.take_next().has_value()) continue;
  Step step;
  step.handler = &copy_row64;
  return s.need(1, 5) && s.destination(0, Type::kB64, step.d) && s.constant(0, 8, step.a) &&
         s.emit(step);
}

}  // namespace

Flow frame_address(Warp& warp, const Step& step, Mask lanes) {
  const std::uint64_t address =
      kLocalWindow + warp.frame().local + static_cast<std::uint64_t>(step.value);
  std::byte* d = warp.row(step.d);
  if (step.p == 4) {
    each_lane<std::uint32_t>(d, lanes,
                             [&](unsigned) { return static_cast<std::uint32_t>(address); });
  } else {
    each_lane<std::uint64_t>(d, lanes, [&](unsigned) { return address; });
  }
  return Flow::kNext;
}

// Where the array lies that a variadic function was given: its caller's frame.
Flow passed_address(Warp& warp, const Step& step, Mask lanes) {
  const OwnMemory& own = warp.own_memory();
  const std::uint64_t place = warp.frame().local + std::uint64_t{step.extra};
  if (!own.holds(place, 8)) return warp.fault(FaultKind::kStackOverflow, lanes);
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) {
    std::uint64_t address = 0;
    std::memcpy(&address, own.at(lane, place), sizeof(address));
    address += static_cast<std::uint64_t>(step.value);
    if (step.p == 4) {
      put<std::uint32_t>(d, lane, static_cast<std::uint32_t>(address));
    } else {
      put<std::uint64_t>(d, lane, address);
    }
  });
  return Flow::kNext;
}

bool select_address(Selector& s) {
  switch (s.opcode()) {
    case "cvta"_n:
      return select_convert_address(s);
    case "isspacep"_n:
      return select_is_space(s);
    case "mapa"_n:
      return select_map(s);
    case "getctarank"_n:
      return select_rank(s);
    case "alloca"_n:
      return select_allocate(s);
    case "stacksave"_n:
      return select_stack(s, true);
    case "stackrestore"_n:
      return select_stack(s, false);
    case "createpolicy"_n:
      return select_policy(s);
    case "prefetch"_n:
    case "prefetchu"_n:
    case "applypriority"_n:
    case "discard"_n:
      return select_nothing(s);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
