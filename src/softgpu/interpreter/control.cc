// Control flow: bra, brx, call, ret, exit, trap and the like.
#include <algorithm>

#include "base/clock.h"
#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/lanes.h"
#include "softgpu/interpreter/select.h"
#include "softgpu/interpreter/system.h"
#include "softgpu/ptx/types.h"

namespace flyt::ptx {
namespace {

Flow branch_indexed(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const auto& table = warp.program().tables[step.extra];
  const auto first = get<std::uint32_t>(a, static_cast<unsigned>(std::countr_zero(lanes)));
  if (first >= table.size()) return warp.fault(FaultKind::kIllegalInstruction, lanes);
  Flow flow = Flow::kNext;
  const Mask same =
      which_lanes(lanes, [&](unsigned lane) { return get<std::uint32_t>(a, lane) == first; });
  // Only the guarded lanes branch; those with other targets come back to this step.
  lanes = warp.keep(lanes, same, flow);
  if (lanes == warp.active()) {
    const Flow jumped = warp.jump(table[first]);
    return flow == Flow::kNext ? jumped : warp.settle();
  }
  return warp.diverge(table[first], lanes);
}

Flow return_to_caller(Warp& warp, const Step&, Mask lanes) { return warp.give_back(lanes); }
Flow exit_threads(Warp& warp, const Step&, Mask lanes) { return warp.exit(lanes); }
Flow trap(Warp& warp, const Step&, Mask lanes) { return warp.fault(FaultKind::kTrap, lanes); }
Flow breakpoint(Warp& warp, const Step&, Mask lanes) {
  return warp.fault(FaultKind::kIllegalInstruction, lanes);
}
// A warp among others lets them run, which takes its time. One that is alone would only keep a
// processor from somebody else.
Flow sleep(Warp& warp, const Step& step, Mask lanes) {
  constexpr std::uint32_t kSleepMaxNs = 1'000'000;  // As PTX has it.
  const LaunchState& state = warp.block().state();
  if (state.block_count == 1 && state.warps == 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const std::uint32_t wished = get<std::uint32_t>(warp.row(step.a), lane);
    system_clock().sleep_for(Duration(std::min(wished, kSleepMaxNs)));
  }
  warp.polled();
  warp.yield();
  return Flow::kNext;
}

bool select_branch(Selector& s) {
  s.take("uni"_n);
  if (!s.need(1, 1)) return false;
  if (s.operand(0).kind != Operand::Kind::kLabel) return s.refuse("needs a label");
  Step step;
  step.handler = &branch;
  return s.emit_branch(step, s.operand(0).index);
}

bool select_branch_indexed(Selector& s) {
  if (!s.take("idx"_n)) return s.refuse_form();
  s.take("uni"_n);
  if (!s.need(2, 2)) return false;
  if (s.operand(1).kind != Operand::Kind::kTable) return s.refuse("needs a list of labels");
  Step step;
  step.handler = &branch_indexed;
  step.extra = s.add_table(s.code().tables[s.operand(1).index]);
  return s.source(0, Type::kU32, step.a) && s.emit(step);
}

bool select_return(Selector& s) {
  s.take("uni"_n);
  if (!s.need(0, 0)) return false;
  Step step;
  if (s.function().kernel) {
    step.handler = &exit_threads;
    return s.emit(step);
  }
  for (const Parameter& parameter : s.function().returns) {
    if (parameter.in_register < 0) continue;
    Step copy;
    copy.handler = &store_return_register;
    copy.a = s.register_row(static_cast<std::uint32_t>(parameter.in_register));
    copy.extra = parameter.offset;
    copy.value = parameter.size;
    if (!s.emit(copy)) return false;
  }
  step.handler = &return_to_caller;
  return s.emit(step);
}

bool select_plain(Selector& s, Handler handler) {
  Step step;
  step.handler = handler;
  return s.need(0, 0) && s.emit(step);
}

bool select_sleep(Selector& s) {
  Step step;
  step.handler = &sleep;
  Type type;
  return s.take_type(type) && s.need(1, 1) && s.source(0, Type::kU32, step.a) && s.emit(step);
}

bool select_hint(Selector& s) {
  while (s.take_next().has_value()) continue;
  return s.need(0, 1);
}

// Copies `size` bytes between a register and the frame.
Flow copy_register(Warp& warp, Row row, std::uint32_t size, std::uint64_t offset, Mask lanes,
                   bool to_frame) {
  std::byte* cells = warp.row(row);
  const std::size_t cell =
      row.base() == static_cast<std::uint32_t>(Row::Base::k32) ||
              (row.base() == static_cast<std::uint32_t>(Row::Base::kConstant) && size <= 4)
          ? 4
          : 8;
  const OwnMemory& own = warp.own_memory();
  if (!own.holds(offset, size)) return warp.fault(FaultKind::kStackOverflow, lanes);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::byte* place = own.at(lane, offset);
    std::uint64_t value = 0;
    if (to_frame) {
      std::memcpy(&value, cells + lane * cell, cell);
      std::memcpy(place, &value, size);
    } else {
      std::memcpy(&value, place, size);
      std::memcpy(cells + lane * cell, &value, cell);
    }
  }
  return Flow::kNext;
}

// The bytes of each lane at `from` go to `to`; both lie in its frames.
template <std::size_t N>
void copy_own(const OwnMemory& own, Mask lanes, std::uint64_t to, std::uint64_t from,
              std::size_t size) {
  for_lanes(lanes, [&](unsigned lane) {
    std::memmove(own.at(lane, to), own.at(lane, from), N != 0 ? N : size);
  });
}

Flow copy_arguments(Warp& warp, const CallSite& site, Mask lanes, bool back) {
  const OwnMemory& memory = warp.own_memory();
  const std::uint64_t own = warp.frame().local;
  const std::uint64_t other = warp.frame().stack;
  for (const Argument& argument : back ? site.returns : site.arguments) {
    if (argument.in_register) {
      const Flow flow =
          copy_register(warp, argument.row, argument.size, other + argument.remote, lanes, !back);
      if (flow != Flow::kNext) return flow;
      continue;
    }
    const std::uint64_t here = own + argument.local;
    const std::uint64_t there = other + argument.remote;
    if (argument.is_address) {
      if (!memory.holds(there, sizeof(here))) {
        return warp.fault(FaultKind::kStackOverflow, lanes);
      }
      const std::uint64_t address = kLocalWindow + here;
      for_lanes(lanes, [&](unsigned lane) {
        std::memcpy(memory.at(lane, there), &address, sizeof(address));
      });
      continue;
    }
    if (!memory.holds(here, argument.size) || !memory.holds(there, argument.size)) {
      return warp.fault(FaultKind::kStackOverflow, lanes);
    }
    const auto copy = argument.size == 8   ? &copy_own<8>
                      : argument.size == 4 ? &copy_own<4>
                                           : &copy_own<0>;
    copy(memory, lanes, back ? here : there, back ? there : here, argument.size);
  }
  return Flow::kNext;
}

Flow enter(Warp& warp, const CallSite& site, std::uint32_t callee, Mask lanes) {
  const FunctionCode& function = warp.program().functions[callee];
  if (function.system == SystemCall::kNone && !function.defined) {
    return warp.fault(FaultKind::kInvalidPc, lanes);
  }
  const Flow copied = copy_arguments(warp, site, lanes, false);
  if (copied != Flow::kNext) return copied;
  if (function.system != SystemCall::kNone) return system_call(warp, function, site, lanes);
  return warp.call(site, callee, lanes);
}

Flow call_direct(Warp& warp, const Step& step, Mask lanes) {
  const CallSite& site = warp.program().calls[step.extra];
  return enter(warp, site, site.callee, lanes);
}

Flow call_indirect(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const auto target = get<std::uint64_t>(a, static_cast<unsigned>(std::countr_zero(lanes)));
  const std::uint64_t index = (target - kFunctionWindow) / kFunctionStride;
  if (target < kFunctionWindow || target % kFunctionStride != 0 ||
      index >= warp.program().functions.size() ||
      warp.program().module->functions()[index].kernel) {
    return warp.fault(FaultKind::kInvalidPc, lanes, target);
  }
  Flow flow = Flow::kNext;
  lanes = warp.keep(
      lanes,
      which_lanes(lanes, [&](unsigned lane) { return get<std::uint64_t>(a, lane) == target; }),
      flow);
  const Flow entered =
      enter(warp, warp.program().calls[step.extra], static_cast<std::uint32_t>(index), lanes);
  if (entered != Flow::kNext) return entered;
  return flow == Flow::kNext ? flow : warp.settle();
}

Flow after_call(Warp& warp, const Step& step, Mask lanes) {
  return copy_arguments(warp, warp.program().calls[step.extra], lanes, true);
}

// One actual argument or result against its slot.
bool bind(Selector& s, const Operand& operand, const Prototype::Slot& slot, bool result,
          Argument& argument) {
  argument.remote = slot.offset;
  argument.size = slot.size;
  if (operand.kind == Operand::Kind::kFrame || operand.kind == Operand::Kind::kParameter ||
      operand.kind == Operand::Kind::kReturn) {
    if (operand.value != 0 || (operand.kind != Operand::Kind::kFrame && s.function().kernel)) {
      return s.refuse("has a malformed argument");
    }
    std::uint64_t size = 0;
    argument.is_address = slot.unsized;
    if (operand.kind == Operand::Kind::kFrame) {
      size = s.code().frame[operand.index].size;
      argument.local = s.code().frame[operand.index].offset;
    } else {
      const bool returns = operand.kind == Operand::Kind::kReturn;
      const auto& own = (returns ? s.function().returns : s.function().parameters)[operand.index];
      size = own.size;
      argument.local = own.offset;
      // What a variadic function was given it may pass on: the same array.
      if (own.unsized) argument.is_address = false;
      if (own.unsized && !slot.unsized) return s.refuse("has an argument of another size");
    }
    if (size < slot.size && !slot.unsized) return s.refuse("has an argument of another size");
    return true;
  }
  if (slot.unsized) return s.refuse("has an argument of another size");
  argument.in_register = true;
  if (slot.size != 1 && slot.size != 2 && slot.size != 4 && slot.size != 8) {
    return s.refuse("has an argument of another size");
  }
  const Type type = slot.size == 8   ? Type::kB64
                    : slot.size == 4 ? Type::kB32
                    : slot.size == 2 ? Type::kB16
                                     : Type::kB8;
  return result ? s.destination(operand, type, argument.row, true)
                : s.source(operand, type, argument.row, true);
}

bool bind_all(Selector& s, const Operand* list, const std::vector<Prototype::Slot>& slots,
              bool result, std::vector<Argument>& into) {
  const std::size_t count = list == nullptr ? 0 : list->count;
  // Who passes nothing to the variable part of a function may leave it out.
  const bool left_out = count + 1 == slots.size() && slots.back().unsized;
  if (count != slots.size() && !left_out) return s.refuse("has a wrong number of arguments");
  for (std::size_t i = 0; i < count; ++i) {
    Argument argument;
    if (!bind(s, s.element(*list, i), slots[i], result, argument)) return false;
    into.push_back(argument);
  }
  return true;
}

std::uint32_t block_bytes(const Prototype& prototype, std::uint32_t align) {
  std::uint64_t bytes = 0;
  for (const auto& slot : prototype.returns) bytes = slot.offset + slot.size;
  for (const auto& slot : prototype.parameters) bytes = slot.offset + slot.size;
  return static_cast<std::uint32_t>(align_up(bytes, align));
}

struct CallParts {
  const Operand* returns = nullptr;
  const Operand* target = nullptr;
  const Operand* arguments = nullptr;
  const Operand* prototype = nullptr;
};

// call (returns), target, (arguments), prototype — all but the target optional.
bool split_call(Selector& s, CallParts& parts) {
  std::size_t next = 0;
  const auto is_list = [&](std::size_t i) {
    return i < s.operand_count() && s.operand(i).kind == Operand::Kind::kVector &&
           s.operand(i).paren;
  };
  if (is_list(next)) parts.returns = &s.operand(next++);
  if (next >= s.operand_count()) return s.refuse("needs a target");
  parts.target = &s.operand(next++);
  if (is_list(next)) parts.arguments = &s.operand(next++);
  if (next < s.operand_count()) parts.prototype = &s.operand(next++);
  return next == s.operand_count() || s.refuse("has a wrong number of operands");
}

}  // namespace

Flow branch(Warp& warp, const Step& step, Mask lanes) {
  if (lanes == warp.active()) return warp.jump(step.extra);
  return warp.diverge(step.extra, lanes);
}

Flow end_of_kernel(Warp& warp, const Step&, Mask lanes) { return warp.exit(lanes); }
Flow end_of_function(Warp& warp, const Step&, Mask lanes) { return warp.give_back(lanes); }

Flow load_parameter_register(Warp& warp, const Step& step, Mask lanes) {
  return copy_register(warp, step.d, static_cast<std::uint32_t>(step.value),
                       warp.frame().local + std::uint64_t{step.extra}, lanes, false);
}

Flow store_return_register(Warp& warp, const Step& step, Mask lanes) {
  return copy_register(warp, step.a, static_cast<std::uint32_t>(step.value),
                       warp.frame().local + std::uint64_t{step.extra}, lanes, true);
}

bool select_call(Selector& s) {
  s.take("uni"_n);
  CallParts parts;
  if (!split_call(s, parts)) return false;
  CallSite site;
  Step step;
  Prototype prototype;
  if (parts.target->kind == Operand::Kind::kFunction) {
    site.callee = parts.target->index;
    const Function& callee = s.module().functions()[site.callee];
    if (callee.kernel) return s.refuse("calls a kernel");
    prototype = prototype_of(callee.returns, callee.parameters);
    s.references().callees.push_back(site.callee);
    s.references().prints |= s.program().functions[site.callee].system == SystemCall::kPrint;
    step.handler = &call_direct;
  } else {
    if (parts.prototype == nullptr || parts.prototype->kind != Operand::Kind::kPrototype) {
      return s.refuse("needs a prototype");
    }
    prototype = s.code().prototypes[parts.prototype->index];
    s.references().indirect_calls = true;
    step.handler = &call_indirect;
    if (!s.source(*parts.target, Type::kB64, step.a)) return false;
  }
  site.block_bytes = block_bytes(prototype, s.program().frame_align);
  if (!bind_all(s, parts.arguments, prototype.parameters, false, site.arguments) ||
      !bind_all(s, parts.returns, prototype.returns, true, site.returns)) {
    return false;
  }
  const bool results = !site.returns.empty();
  s.program().calls.push_back(std::move(site));
  step.extra = static_cast<std::uint32_t>(s.program().calls.size() - 1);
  if (!s.emit(step)) return false;
  if (!results) return true;
  Step after;
  after.handler = &after_call;
  after.extra = step.extra;
  return s.emit(after);
}

bool select_control(Selector& s) {
  switch (s.opcode()) {
    case "bra"_n:
      return select_branch(s);
    case "brx"_n:
      return select_branch_indexed(s);
    case "ret"_n:
      return select_return(s);
    case "exit"_n:
      return select_plain(s, &exit_threads);
    case "trap"_n:
      return select_plain(s, &trap);
    case "brkpt"_n:
      return select_plain(s, &breakpoint);
    case "nanosleep"_n:
      return select_sleep(s);
    case "pmevent"_n:
    case "griddepcontrol"_n:
    case "setmaxnreg"_n:
      return select_hint(s);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
