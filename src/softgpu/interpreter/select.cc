#include "softgpu/interpreter/select.h"

#include <algorithm>

#include "softgpu/interpreter/flow_graph.h"
#include "softgpu/ptx/types.h"

namespace flyt::ptx {
namespace {

constexpr Row kUnplaced{~std::uint32_t{0}};
constexpr std::uint32_t kNotNumbered = ~std::uint32_t{0};

}  // namespace

std::optional<Row> ConstantPool::add(std::uint64_t bits, unsigned bytes) {
  const std::size_t offset = program_.constants.size();
  const std::size_t size = std::size_t{bytes} * kLanes;
  if (offset + size > kConstantBytesMax) return std::nullopt;
  program_.constants.resize(offset + size);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    std::memcpy(program_.constants.data() + offset + lane * bytes, &bits, bytes);
  }
  return Row::make(Row::Base::kConstant, static_cast<std::uint32_t>(offset));
}

std::optional<Row> ConstantPool::value(std::uint64_t bits, unsigned bytes) {
  auto& known = bytes == 8 ? rows64_ : rows32_;
  if (bytes != 8) bits &= 0xffffffff;
  if (const auto found = known.find(bits); found != known.end()) return found->second;
  const auto row = add(bits, bytes == 8 ? 8 : 4);
  if (row.has_value()) known.emplace(bits, *row);
  return row;
}

std::optional<Row> ConstantPool::variable_address(std::uint32_t variable, std::int64_t addend) {
  if (addend == 0) {
    if (const auto found = addresses_.find(variable); found != addresses_.end()) {
      return found->second;
    }
  }
  const auto row = add(0, 8);
  if (!row.has_value()) return row;
  program_.relocations.push_back({row->offset(), variable, addend});
  if (addend == 0) addresses_.emplace(variable, *row);
  return row;
}

Selector::Selector(Program& program, ConstantPool& constants, std::uint32_t function, JitLog* log)
    : program_(program),
      constants_(constants),
      function_index_(function),
      function_(program.module->functions()[function]),
      log_(log),
      register_rows_(function_.code.registers.size(), kUnplaced),
      predicates_(function_.code.registers.size(), kNotNumbered) {
  bytes64_ = 2 * kRow64Bytes;  // Rows 0 and 1: where to return to.
}

bool Selector::run(References& references) {
  references_ = &references;
  FunctionCode& code = program_.functions[function_index_];
  code.entry = next_step();
  code.defined = true;
  if (!prologue() || !body()) return false;
  step_of_.push_back(next_step());
  Step end;
  end.handler = function_.kernel ? &end_of_kernel : &end_of_function;
  program_.steps.push_back(end);
  program_.lines.push_back(function_.line);
  if (!finish_branches()) return false;
  code.end = next_step();
  code.bytes32 = bytes32_;
  code.bytes64 = bytes64_;
  code.predicates = std::max(predicate_count_, 1u);
  code.frame_bytes =
      static_cast<std::uint32_t>(align_up(function_.code.frame_bytes, program_.frame_align));
  code.parameter_bytes = function_.parameter_bytes;
  return true;
}

// Parameters that were declared as registers come out of the frame first.
bool Selector::prologue() {
  if (function_.kernel) return true;
  instruction_ = nullptr;
  for (const Parameter& parameter : function_.parameters) {
    if (parameter.in_register < 0) continue;
    const auto index = static_cast<std::uint32_t>(parameter.in_register);
    Step step;
    step.handler = &load_parameter_register;
    step.extra = parameter.offset;
    step.value = parameter.size;
    if (function_.code.registers[index].kind == Register::Kind::kPredicate) {
      return refuse("predicate parameters are not supported");
    }
    step.d = register_row(index);
    if (!emit_unguarded(step)) return false;
  }
  return true;
}

bool Selector::body() {
  const std::vector<Stretch> stretches = lay_out(code());
  const auto count = static_cast<std::uint32_t>(code().instructions.size());
  step_of_.resize(count);
  // What falls into the first instruction comes before whatever stands first.
  if (stretches[0].first != 0 && !emit_jump(0)) return false;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const bool last = i + 1 == stretches.size();
    if (!stretch(stretches[i], last ? count : stretches[i + 1].first)) return false;
  }
  return true;
}

// `following`: the first instruction of the next stretch. Where lanes go elsewhere without a branch
// there is one now, and one that leads there is no more.
bool Selector::stretch(const Stretch& stretch, std::uint32_t following) {
  for (std::uint32_t i = stretch.first; i < stretch.end; ++i) {
    step_of_[i] = next_step();
    if (!instruction(code().instructions[i])) return false;
  }
  if (stretch.first == stretch.end || stretch.end == following) return true;
  const bool falls = goes_on(code().instructions[stretch.end - 1]);
  // Hints are no steps: the last one may be an earlier instruction's.
  const bool made = next_step() == step_of_[stretch.end - 1] + 1;
  if (!made) return !falls || emit_jump(stretch.end);
  Step& last = program_.steps.back();
  if (last.handler != &branch || last.extra != following) return !falls || emit_jump(stretch.end);
  if (falls) {
    last.guard ^= 1;  // The other lanes branch instead.
    last.extra = stretch.end;
    return true;
  }
  program_.steps.pop_back();
  program_.lines.pop_back();
  branches_.pop_back();
  return true;
}

bool Selector::finish_branches() {
  const auto& labels = code().labels;
  for (const std::uint32_t step : branches_) {
    program_.steps[step].extra = step_of_[program_.steps[step].extra];
  }
  for (const std::uint32_t table : tables_) {
    for (std::uint32_t& entry : program_.tables[table]) entry = step_of_[labels[entry]];
  }
  return true;
}

bool Selector::take(std::uint32_t name) {
  for (unsigned i = 0; i < instruction_->modifier_count; ++i) {
    if ((taken_ >> i & 1) == 0 && code().modifiers[instruction_->first_modifier + i].hash == name) {
      taken_ |= 1u << i;
      return true;
    }
  }
  return false;
}

bool Selector::has(std::uint32_t name) const {
  for (unsigned i = 0; i < instruction_->modifier_count; ++i) {
    if (code().modifiers[instruction_->first_modifier + i].hash == name) return true;
  }
  return false;
}

std::optional<Type> Selector::take_type() {
  for (unsigned i = 0; i < instruction_->modifier_count; ++i) {
    if ((taken_ >> i & 1) != 0) continue;
    const auto type = type_named(code().modifiers[instruction_->first_modifier + i].hash);
    if (!type.has_value()) continue;
    taken_ |= 1u << i;
    return type;
  }
  return std::nullopt;
}

bool Selector::take_type(Type& type) {
  const auto found = take_type();
  if (!found.has_value()) return refuse("lacks a type");
  type = *found;
  return true;
}

int Selector::take_one(std::initializer_list<std::uint32_t> names) {
  int index = 0;
  for (const std::uint32_t name : names) {
    if (take(name)) return index;
    ++index;
  }
  return -1;
}

std::optional<std::uint32_t> Selector::take_next() {
  for (unsigned i = 0; i < instruction_->modifier_count; ++i) {
    if ((taken_ >> i & 1) != 0) continue;
    taken_ |= 1u << i;
    return code().modifiers[instruction_->first_modifier + i].hash;
  }
  return std::nullopt;
}

void Selector::take_memory_hints() {
  constexpr std::uint32_t kHints[] = {
      "ca"_n,
      "cg"_n,
      "cs"_n,
      "lu"_n,
      "cv"_n,
      "wb"_n,
      "wt"_n,
      "nc"_n,
      "weak"_n,
      "cta"_n,
      "cluster"_n,
      "gpu"_n,
      "sys"_n,
      "L1::evict_normal"_n,
      "L1::evict_unchanged"_n,
      "L1::evict_first"_n,
      "L1::evict_last"_n,
      "L1::no_allocate"_n,
      "L2::evict_normal"_n,
      "L2::evict_first"_n,
      "L2::evict_last"_n,
      "L2::64B"_n,
      "L2::128B"_n,
      "L2::256B"_n,
      "unified"_n,
      "mmio"_n,
  };
  for (const std::uint32_t hint : kHints) take(hint);
}

std::uint32_t Selector::opcode() const { return instruction_->opcode.hash; }
std::size_t Selector::operand_count() const { return instruction_->operand_count; }

const Operand& Selector::operand(std::size_t index) const {
  static const Operand kNone;
  if (index >= instruction_->operand_count) return kNone;
  return code().operands[instruction_->first_operand + index];
}

const Operand& Selector::element(const Operand& vector, std::size_t index) const {
  return code().operands[vector.index + index];
}

const Register* Selector::register_of(const Operand& operand) const {
  if (operand.kind != Operand::Kind::kRegister) return nullptr;
  return &code().registers[operand.index];
}

unsigned Selector::register_bytes(const Operand& operand) const {
  const Register* shape = register_of(operand);
  return shape == nullptr ? 0 : shape->bytes;
}

bool Selector::need(std::size_t least, std::size_t most) {
  if (operand_count() >= least && operand_count() <= most) return true;
  return refuse("has a wrong number of operands");
}

Row Selector::new_row(unsigned bytes) {
  const bool wide = bytes > 4;
  std::uint32_t& used = wide ? bytes64_ : bytes32_;
  if (used > kRegisterFileBytesMax / 2) {
    refuse("needs more registers than the limit");
    used = 2 * kRow64Bytes;
  }
  const Row row = Row::make(wide ? Row::Base::k64 : Row::Base::k32, used);
  used += bytes == 16 ? 2 * kRow64Bytes : wide ? kRow64Bytes : kRow32Bytes;
  return row;
}

Row Selector::register_row(std::uint32_t index) {
  Row& row = register_rows_[index];
  if (row == kUnplaced) row = new_row(code().registers[index].bytes);
  return row;
}

std::uint32_t Selector::new_predicate() { return predicate_count_++; }

std::uint32_t Selector::predicate_index(std::uint32_t index) {
  std::uint32_t& number = predicates_[index];
  if (number == kNotNumbered) number = new_predicate();
  return number;
}

Row Selector::temporary(unsigned bytes) {
  auto& rows = bytes > 4 ? temporaries64_ : temporaries32_;
  std::size_t& used = bytes > 4 ? used64_ : used32_;
  const std::size_t wanted = bytes == 16 ? 2 : 1;
  if (wanted == 2) return new_row(16);
  if (used == rows.size()) rows.push_back(new_row(bytes));
  return rows[used++];
}

bool Selector::constant(std::uint64_t value, unsigned bytes, Row& row) {
  const auto made = constants_.value(value, bytes);
  if (!made.has_value()) return refuse("needs more constants than the limit");
  row = *made;
  return true;
}

bool Selector::immediate(const Operand& operand, Type type, Row& row) {
  std::uint64_t bits = operand.bits;
  const unsigned bytes = type_bytes(type);
  if (operand.kind == Operand::Kind::kFloat32) {
    if (bytes == 8 && type == Type::kF64) {
      const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      bits = std::bit_cast<std::uint64_t>(static_cast<double>(single));
    } else if (bytes != 4) {
      return refuse("has an immediate operand of another type");
    }
  } else if (operand.kind == Operand::Kind::kFloat64) {
    if (bytes == 4) {
      const double value = std::bit_cast<double>(bits);
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    } else if (bytes != 8) {
      return refuse("has an immediate operand of another type");
    }
  } else if (type == Type::kF32 || type == Type::kF64) {
    return refuse("has an integer where a floating-point number belongs");
  }
  if (bytes == 16) return refuse_form();
  return constant(bits, bytes > 4 ? 8 : 4, row);
}

bool Selector::special(const Operand& operand, Type type, Row& row) {
  const auto name = static_cast<std::uint32_t>(operand.bits);
  if (is_fourth_component(name)) return constant(0, type_bytes(type), row);
  unsigned bytes = 0;
  if (!special_known(name, bytes)) {
    return refuse("refers to the unsupported register '" + code().spellings[operand.index] + "'");
  }
  const unsigned wanted = type_bytes(type);
  if (wanted == 0 || wanted > 8) return refuse_form();
  Step step;
  step.handler = &read_special;
  step.d = row = temporary(wanted);
  step.extra = name;
  step.value = wanted;
  return emit_unguarded(step);
}

// An element of an array is its begin, found as if there were no subscript, and more.
bool Selector::element_of(const Operand& operand, Type type, Row& row) {
  Operand whole = operand;
  whole.element_bytes = 0;
  if (operand.subscript == 0) return address_of(whole, type, row);
  whole.subscript = 0;
  whole.value = 0;
  Step step;
  if (!address_of(whole, type, step.a)) return false;
  const Register& index = code().registers[operand.subscript - 1];
  step.handler =
      index.bytes == 2
          ? (index.is_signed ? &element_address<std::int16_t> : &element_address<std::uint16_t>)
      : index.bytes == 4 ? &element_address<std::uint32_t>
                         : &element_address<std::uint64_t>;
  step.b = register_row(operand.subscript - 1);
  step.d = row = temporary(type_bytes(type));
  step.p = type_bytes(type);
  step.extra = operand.element_bytes;
  step.value = operand.value;
  return emit_unguarded(step);
}

// The address of a variable, function or part of the frame, in its own space.
bool Selector::address_of(const Operand& operand, Type type, Row& row) {
  const unsigned bytes = type_bytes(type);
  if (bytes != 4 && bytes != 8) return refuse("cannot hold an address");
  if (operand.element_bytes != 0) return element_of(operand, type, row);
  const auto addend = static_cast<std::uint64_t>(operand.value);
  if (operand.kind == Operand::Kind::kFunction) {
    // Its address may be called by anybody.
    return constant(kFunctionWindow + std::uint64_t{operand.index} * kFunctionStride, bytes, row);
  }
  if (operand.kind == Operand::Kind::kVariable) {
    const Variable& variable = module().variables()[operand.index];
    if (variable.space == Space::kShared) {
      references().variables.push_back(operand.index);
      const std::uint64_t offset = program_.shared_offsets[operand.index];
      return constant(static_cast<std::uint32_t>(offset + addend), bytes, row);
    }
    if (variable.space == Space::kLocal) return refuse("names a module-scope .local variable");
    if (bytes != 8) return refuse("cannot hold a 64-bit address");
    const auto made = constants_.variable_address(operand.index, operand.value);
    if (!made.has_value()) return refuse("needs more constants than the limit");
    row = *made;
    return true;
  }
  Step step;
  step.handler = &frame_address;
  step.p = bytes;
  step.d = row = temporary(bytes);
  if (operand.kind == Operand::Kind::kFrame) {
    step.value = static_cast<std::int64_t>(code().frame[operand.index].offset + addend);
  } else {
    const bool returns = operand.kind == Operand::Kind::kReturn;
    const auto& list = returns ? function_.returns : function_.parameters;
    const std::uint64_t offset = list[operand.index].offset + addend;
    if (list[operand.index].unsized) {
      step.handler = &passed_address;
      step.extra = list[operand.index].offset;
      step.value = operand.value;
      return emit_unguarded(step);
    }
    if (function_.kernel) return constant(offset, bytes, row);
    step.value = static_cast<std::int64_t>(offset);
  }
  return emit_unguarded(step);
}

bool Selector::source(const Operand& operand, Type type, Row& row, bool wider) {
  if (operand.memory) return refuse("has an address where a value belongs");
  switch (operand.kind) {
    case Operand::Kind::kRegister: {
      if (operand.value != 0 || operand.negated) return refuse("has a malformed operand");
      const unsigned have = register_bytes(operand);
      const unsigned want = type_bytes(type);
      if (have != want && !(wider && have > want)) {
        return refuse("has an operand of another size");
      }
      if (want == 0) return refuse("has a predicate where a value belongs");
      row = register_row(operand.index);
      return true;
    }
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat32:
    case Operand::Kind::kFloat64:
      return immediate(operand, type, row);
    case Operand::Kind::kSpecial:
      return special(operand, type, row);
    case Operand::Kind::kVariable:
    case Operand::Kind::kFrame:
    case Operand::Kind::kParameter:
    case Operand::Kind::kReturn:
    case Operand::Kind::kFunction:
      return address_of(operand, type, row);
    case Operand::Kind::kLabel:
    case Operand::Kind::kTable:
    case Operand::Kind::kPrototype:
    case Operand::Kind::kVector:
    case Operand::Kind::kSink:
      break;
  }
  return refuse("has a malformed operand");
}

bool Selector::destination(const Operand& operand, Type type, Row& row, bool wider) {
  if (operand.kind == Operand::Kind::kSink) {
    const unsigned bytes = type_bytes(type);
    row = temporary(wider ? 8 : bytes);
    return true;
  }
  if (operand.kind != Operand::Kind::kRegister || operand.memory || operand.value != 0 ||
      operand.negated) {
    return refuse("has a malformed destination");
  }
  return source(operand, type, row, wider);
}

bool Selector::predicate_source(const Operand& operand, std::uint32_t& predicate) {
  if (operand.kind == Operand::Kind::kInteger && !operand.memory) {
    // Constants: true needs no register, false is its negation.
    const std::uint32_t number = new_predicate();
    Step step;
    step.handler = [](Warp& warp, const Step& s, Mask lanes) {
      warp.set_predicate(s.p, lanes, s.value != 0 ? kAllLanes : 0);
      return Flow::kNext;
    };
    step.p = number;
    step.value = operand.bits != 0;
    predicate = number << 1;
    return emit_unguarded(step);
  }
  if (operand.kind == Operand::Kind::kSpecial && operand.bits == "%is_explicit_cluster"_n) {
    // The only special register that is a predicate.
    const std::uint32_t number = new_predicate();
    Step step;
    step.handler = [](Warp& warp, const Step& s, Mask lanes) {
      const std::byte* a = warp.row(s.a);
      warp.set_predicate(s.p, lanes, which_lanes(lanes, [&](unsigned lane) {
                           return get<std::uint32_t>(a, lane) != 0;
                         }));
      return Flow::kNext;
    };
    step.p = number;
    predicate = number << 1;
    return special(operand, Type::kB32, step.a) && emit_unguarded(step);
  }
  const Register* shape = register_of(operand);
  if (shape == nullptr || shape->kind != Register::Kind::kPredicate || operand.memory ||
      operand.value != 0) {
    return refuse("needs a predicate");
  }
  predicate = predicate_index(operand.index) << 1 | (operand.negated ? 1 : 0);
  return true;
}

bool Selector::predicate_destination(const Operand& operand, std::uint32_t& predicate) {
  predicate = kNoPredicate;
  if (operand.kind == Operand::Kind::kSink) return true;
  const Register* shape = register_of(operand);
  if (shape == nullptr || shape->kind != Register::Kind::kPredicate || operand.negated ||
      operand.memory || operand.value != 0) {
    return refuse("needs a predicate");
  }
  predicate = predicate_index(operand.index);
  return true;
}

// Whether what stands for an address may be written a[1].
bool takes_elements(std::uint32_t opcode) {
  return opcode == "ld"_n || opcode == "ldu"_n || opcode == "st"_n;
}

// Whether an address that names a variable may be used in the space.
bool Selector::space_matches(const Operand& operand, Space space) const {
  if (operand.kind == Operand::Kind::kParameter || operand.kind == Operand::Kind::kReturn) {
    return space == Space::kParam;
  }
  if (operand.kind != Operand::Kind::kVariable || space == Space::kGeneric) return true;
  return module().variables()[operand.index].space == space;
}

bool Selector::address(const Operand& operand, Space space, Row& row, std::int64_t& offset) {
  offset = 0;
  const bool element = operand.element_bytes != 0 && takes_elements(opcode());
  if (!operand.memory && !element) return refuse("needs an address in brackets");
  if (!space_matches(operand, space)) return refuse("names a variable of another state space");
  if (operand.kind == Operand::Kind::kRegister) {
    const Register* shape = register_of(operand);
    if (operand.negated) return refuse("has a malformed address");
    offset = operand.value;
    row = register_row(operand.index);
    if (shape->bytes == 8) return true;
    if (shape->bytes != 4) return refuse("has an address of a wrong size");
    Step step;
    step.handler = &widen_address;
    step.a = row;
    step.d = row = temporary(8);
    return emit_unguarded(step);
  }
  if (operand.kind == Operand::Kind::kInteger) {
    return constant(operand.bits, 8, row);
  }
  if (operand.kind == Operand::Kind::kFunction || operand.kind == Operand::Kind::kSpecial) {
    return refuse("has a malformed address");
  }
  Operand plain = operand;
  plain.memory = false;
  if (operand.kind == Operand::Kind::kVariable &&
      module().variables()[operand.index].space == Space::kShared && space == Space::kGeneric) {
    Row shared;
    if (!source(plain, Type::kB64, shared)) return false;
    row = shared;
    offset = static_cast<std::int64_t>(kSharedWindow);
    return true;
  }
  return source(plain, Type::kB64, row);
}

bool Selector::integer(const Operand& operand, std::uint64_t& value) {
  if (operand.kind != Operand::Kind::kInteger || operand.memory) {
    return refuse("needs an immediate integer");
  }
  value = operand.bits;
  return true;
}

bool Selector::emit(Step step) {
  if (instruction_->guard >= 0) {
    const std::uint32_t predicate =
        predicate_index(static_cast<std::uint32_t>(instruction_->guard));
    step.guard = (predicate << 1 | (instruction_->guard_negated ? 1u : 0u)) + 2;
  }
  return emit_unguarded(step);
}

bool Selector::emit_unguarded(Step step) {
  if (program_.steps.size() >= 4 * kInstructionsMax) return refuse("is one too many");
  program_.steps.push_back(step);
  program_.lines.push_back(instruction_ == nullptr ? function_.line : instruction_->line);
  return true;
}

bool Selector::emit_branch(Step step, std::uint32_t label) {
  branches_.push_back(next_step());
  step.extra = code().labels[label];
  return emit(step);
}

bool Selector::emit_jump(std::uint32_t instruction) {
  Step step;
  step.handler = &branch;
  branches_.push_back(next_step());
  step.extra = instruction;
  return emit_unguarded(step);
}

std::uint32_t Selector::add_table(const std::vector<std::uint32_t>& labels) {
  program_.tables.push_back(labels);
  tables_.push_back(static_cast<std::uint32_t>(program_.tables.size() - 1));
  return tables_.back();
}

std::uint32_t Selector::add_rows(const std::vector<Row>& rows) {
  const auto first = static_cast<std::uint32_t>(program_.rows.size());
  for (const Row row : rows) program_.rows.push_back(row.value);
  return first;
}

bool Selector::refuse(std::string reason) {
  if (!error_.empty()) return false;
  std::uint32_t line = function_.line;
  std::string message = std::move(reason);
  if (instruction_ != nullptr) {
    line = instruction_->line;
    message = "Instruction '" + code().spellings[instruction_->text] + "' " + message;
  }
  if (log_ != nullptr) log_->error(line, message);
  error_ = "PTX line " + std::to_string(line) + ": " + message;
  return false;
}

}  // namespace flyt::ptx
