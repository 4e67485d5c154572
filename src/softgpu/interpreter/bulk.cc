// cp.async.bulk, cp.reduce.async.bulk, st.async and red.async: PTX ISA, "Data Movement". All are
// done at once; an mbarrier hears of it as if they had taken time.
#include "softgpu/interpreter/bulk.h"
#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/reduction.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

// Bits of Step::extra.
constexpr std::uint32_t kToShared = 1;
constexpr std::uint32_t kFromShared = 2;
constexpr std::uint32_t kTells = 4;      // An mbarrier at e.
constexpr std::uint32_t kMulticast = 8;  // To the blocks of the mask at d.

constexpr std::uint32_t kPieceBytes = 16;

Reduce reduce_of(const Step& step) { return std::bit_cast<Reduce>(step.value); }

struct Piece {
  std::uint64_t target = 0;
  std::uint64_t source = 0;
  std::uint32_t bytes = 0;
};

// q: bytes of an element that is reduced, 0: copied.
bool move_bytes(Warp& warp, const Step& step, unsigned lane, const Piece& piece) {
  Access<Space::kGeneric> to(warp, kPieceBytes, true);
  Access<Space::kGeneric> from(warp, kPieceBytes, false);
  for (std::uint32_t at = 0; at < piece.bytes; at += kPieceBytes) {
    const std::byte* here = from.at(lane, piece.source + at);
    std::byte* there = here == nullptr ? nullptr : to.at(lane, piece.target + at);
    if (there == nullptr) return false;
    if (step.q == 0) std::memmove(there, here, kPieceBytes);
    for (std::uint32_t i = 0; step.q != 0 && i < kPieceBytes; i += step.q) {
      reduce_of(step)(there + i, here + i);
    }
  }
  return true;
}

// c bytes from b to a.
Flow move_bulk(Warp& warp, const Step& step, Mask lanes) {
  const auto operand = [&](Row row, unsigned lane) {
    return get<std::uint64_t>(warp.row(row), lane);
  };
  const bool tells = (step.extra & kTells) != 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const auto bytes = get<std::uint32_t>(warp.row(step.c), lane);
    if (bytes % kPieceBytes != 0) return warp.fault(FaultKind::kMisalignedAddress, Mask{1} << lane);
    const std::uint64_t target = operand(step.a, lane);
    Piece piece{windowed(target, (step.extra & kToShared) != 0),
                windowed(operand(step.b, lane), (step.extra & kFromShared) != 0), bytes};
    const std::uint64_t barrier = tells ? operand(step.e, lane) : 0;
    if ((step.extra & kMulticast) == 0) {
      if (!move_bytes(warp, step, lane, piece)) return Flow::kFault;
      if (tells && !tell(warp, lane, barrier, bytes)) return Flow::kFault;
      continue;
    }
    for (auto blocks = get<std::uint32_t>(warp.row(step.d), lane) & 0xffff; blocks != 0;
         blocks &= blocks - 1) {
      const auto rank = static_cast<unsigned>(std::countr_zero(blocks));
      piece.target = windowed(in_block(target, rank), true);
      if (!move_bytes(warp, step, lane, piece)) return Flow::kFault;
      if (!tell(warp, lane, in_block(barrier, rank), bytes)) return Flow::kFault;
    }
  }
  return Flow::kNext;
}

bool is_shared(std::uint32_t space) {
  return space == "shared::cluster"_n || space == "shared::cta"_n;
}

// The two spaces, and what is told at the end.
bool take_ends(Selector& s, Step& step) {
  const auto first = s.take_next();
  const auto second = s.take_next();
  if (!first.has_value() || !second.has_value()) return s.refuse_form();
  if (is_shared(*first)) step.extra |= kToShared;
  if (is_shared(*second)) step.extra |= kFromShared;
  if (!is_shared(*first) && *first != "global"_n) return s.refuse_form();
  if (!is_shared(*second) && *second != "global"_n) return s.refuse_form();
  if (s.take("mbarrier::complete_tx::bytes"_n)) {
    step.extra |= kTells;
    return (step.extra & kToShared) != 0 || s.refuse_form();
  }
  return s.take("bulk_group"_n) || s.refuse_form();
}

bool select_bulk_move(Selector& s, bool reduces) {
  const bool hinted = s.take("L2::cache_hint"_n);
  Step step;
  step.handler = &move_bulk;
  if (s.take("multicast::cluster"_n)) step.extra |= kMulticast;
  if (!take_ends(s, step)) return false;
  const bool tells = (step.extra & kTells) != 0;
  const bool multicast = (step.extra & kMulticast) != 0;
  if (multicast && (!tells || reduces)) return s.refuse_form();
  if (reduces) {
    Reduction reduction;
    if (!take_reduction(s, reduction)) return false;
    step.value = std::bit_cast<std::int64_t>(reduction.apply);
    step.q = type_bytes(reduction.type);
  }
  const std::size_t count = 3 + (tells ? 1 : 0) + (multicast ? 1 : 0) + (hinted ? 1 : 0);
  if (!s.need(count, count)) return false;
  const auto space = [&step](std::uint32_t shared) {
    return (step.extra & shared) != 0 ? Space::kShared : Space::kGlobal;
  };
  if (!address_row(s, s.operand(0), space(kToShared), step.a) ||
      !address_row(s, s.operand(1), space(kFromShared), step.b) ||
      !s.source(2, Type::kB32, step.c)) {
    return false;
  }
  step.d = step.e = step.a;
  if (tells && !address_row(s, s.operand(3), Space::kShared, step.e)) return false;
  return (!multicast || s.source(4, Type::kB16, step.d)) && s.emit(step);
}

// q elements at `extra` go to a, each of value's size or reduced; the mbarrier at e is told.
template <unsigned kBytes>
Flow store_async(Warp& warp, const Step& step, Mask lanes) {
  const std::uint32_t* rows = warp.rows(step.extra);
  Access<Space::kShared> access(warp, kBytes * step.q, true);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::byte* place = access.at(lane, get<std::uint64_t>(warp.row(step.a), lane));
    if (place == nullptr) return access.failed();
    for (unsigned i = 0; i < step.q; ++i) {
      const std::uint64_t value = kBytes == 8 ? get<std::uint64_t>(warp.row(Row{rows[i]}), lane)
                                              : get<std::uint32_t>(warp.row(Row{rows[i]}), lane);
      std::byte bytes[8];
      std::memcpy(bytes, &value, sizeof bytes);
      if (step.value != 0) {
        reduce_of(step)(place + i * kBytes, bytes);
      } else {
        std::memcpy(place + i * kBytes, bytes, kBytes);
      }
    }
    const auto barrier = get<std::uint64_t>(warp.row(step.e), lane);
    if (!tell(warp, lane, barrier, kBytes * step.q)) return Flow::kFault;
  }
  return Flow::kNext;
}

Flow move_address(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  each_lane<std::uint64_t>(warp.row(step.d), lanes, [&](unsigned lane) {
    return get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value);
  });
  return Flow::kNext;
}

// Of a generic address: where it lies in shared memory, or where nothing lies.
bool remote_row(Selector& s, const Operand& operand, bool generic, Row& row) {
  if (!generic) return address_row(s, operand, Space::kShared, row);
  if (!address_row(s, operand, Space::kGeneric, row)) return false;
  Step step;
  step.handler = &move_address;
  step.a = row;
  step.value = -static_cast<std::int64_t>(kSharedWindow);
  step.d = row = s.temporary(8);
  return s.emit_unguarded(step);
}

bool emit_store(Selector& s, Step step, Type type, unsigned count, bool generic) {
  const unsigned bytes = type_bytes(type);
  if ((bytes != 4 && bytes != 8) || !s.need(3, 3)) return s.refuse_form();
  step.handler = bytes == 8 ? &store_async<8> : &store_async<4>;
  const Operand& values = s.operand(1);
  const bool vector = values.kind == Operand::Kind::kVector;
  if (vector ? values.count != count || values.paren : count != 1) return s.refuse_form();
  std::vector<Row> rows(count);
  for (unsigned i = 0; i < count; ++i) {
    if (!s.source(vector ? s.element(values, i) : values, type, rows[i])) return false;
  }
  step.q = count;
  step.extra = s.add_rows(rows);
  return remote_row(s, s.operand(0), generic, step.a) &&
         remote_row(s, s.operand(2), generic, step.e) && s.emit(step);
}

// Both go to the shared memory of a block of the cluster; its addresses are generic where no space
// is named.
bool take_remote(Selector& s, bool& generic) {
  s.take("async"_n);
  s.take_one({"relaxed"_n, "weak"_n});
  s.take_memory_hints();
  generic = !s.take("shared::cluster"_n);
  return s.take("mbarrier::complete_tx::bytes"_n) || s.refuse_form();
}

}  // namespace

bool tell(Warp& warp, unsigned lane, std::uint64_t barrier, std::uint64_t bytes) {
  Access<Space::kShared> access(warp, sizeof(Phase), true);
  std::byte* place = access.at(lane, barrier);
  if (place != nullptr) complete_bytes(place, bytes);
  return place != nullptr;
}

bool address_row(Selector& s, const Operand& operand, Space space, Row& row) {
  std::int64_t offset = 0;
  if (!s.address(operand, space, row, offset)) return false;
  if (offset == 0) return true;
  Step step;
  step.handler = &move_address;
  step.a = row;
  step.value = offset;
  step.d = row = s.temporary(8);
  return s.emit_unguarded(step);
}

bool select_bulk(Selector& s) {
  const bool reduces = s.take("reduce"_n);
  s.take("async"_n);
  s.take("bulk"_n);
  if (s.has("tensor"_n)) return select_tensor_copy(s, reduces);
  if (s.take("commit_group"_n)) return s.need(0, 0);
  if (s.take("wait_group"_n)) {
    s.take("read"_n);
    return s.need(1, 1);
  }
  if (!s.take("prefetch"_n)) return select_bulk_move(s, reduces);
  // Nothing is nearer than anything else here.
  s.take("L2::cache_hint"_n);
  return s.take("L2"_n) && s.take("global"_n) ? s.need(2, 3) : s.refuse_form();
}

bool select_store_async(Selector& s) {
  Type type;
  bool generic = false;
  if (!take_remote(s, generic)) return false;
  const unsigned count = s.take("v2"_n) ? 2 : s.take("v4"_n) ? 4 : 1;
  return s.take_type(type) && emit_store(s, {}, type, count, generic);
}

bool select_reduce_async(Selector& s) {
  Reduction reduction;
  bool generic = false;
  if (!take_remote(s, generic) || !take_reduction(s, reduction)) return false;
  if (is_floating(reduction.type)) return s.refuse_form();
  Step step;
  step.value = std::bit_cast<std::int64_t>(reduction.apply);
  return emit_store(s, step, reduction.type, 1, generic);
}

}  // namespace flyt::ptx
