// Selector: turns the instructions of one function into steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/interpreter/layout.h"
#include "softgpu/interpreter/program.h"
#include "softgpu/interpreter/types.h"

namespace flyt::ptx {

using namespace literals;  // Names of modifiers: take("ftz"_n).

// Rows of equal values, each value once. Belongs to one translation.
class ConstantPool {
 public:
  explicit ConstantPool(Program& program) : program_(program) {}
  // The row of a value of 4 or 8 bytes; nothing where the limit is reached.
  std::optional<Row> value(std::uint64_t bits, unsigned bytes);
  std::optional<Row> variable_address(std::uint32_t variable, std::int64_t addend);

 private:
  std::optional<Row> add(std::uint64_t bits, unsigned bytes);

  Program& program_;
  std::unordered_map<std::uint64_t, Row> rows32_;
  std::unordered_map<std::uint64_t, Row> rows64_;
  std::unordered_map<std::uint64_t, Row> addresses_;  // Of variables, without an addend.
};

// What a function refers to; the layout of shared memory and the depth of stacks follow from it.
struct References {
  std::vector<std::uint32_t> callees;
  std::vector<std::uint32_t> variables;
  bool indirect_calls = false;
  bool unbounded_stack = false;  // alloca
  bool prints = false;
};

// What is handed to every family of instructions: the current instruction, its operands as rows,
// and a place to put steps. Methods that return false have refused the instruction.
class Selector {
 public:
  Selector(Program& program, ConstantPool& constants, std::uint32_t function, JitLog* log);

  // Translates the whole function; fills Program::functions[function] and `references`.
  bool run(References& references);
  const std::string& error() const { return error_; }

  // Modifiers. take() consumes one wherever it stands; what nobody took is refused at the end.
  bool take(std::uint32_t name);
  bool has(std::uint32_t name) const;
  // The first modifier not taken that names a type.
  std::optional<Type> take_type();
  bool take_type(Type& type);  // Refuses where there is none.
  // The first of the names that is there, by index; -1: none.
  int take_one(std::initializer_list<std::uint32_t> names);
  std::optional<std::uint32_t> take_next();  // The first modifier not taken.
  // Drops cache hints, memory scopes and the like that mean nothing here.
  void take_memory_hints();

  std::uint32_t opcode() const;
  std::size_t operand_count() const;
  const Operand& operand(std::size_t index) const;
  const Operand& element(const Operand& vector, std::size_t index) const;
  const Register* register_of(const Operand& operand) const;
  unsigned register_bytes(const Operand& operand) const;  // 0: no register, or a predicate.
  bool need(std::size_t least, std::size_t most);
  // The part of a register that an operand names ("b0"), and whether it is negated ("-%r1"). Who
  // asks knows such operands; others are refused at the end.
  std::string_view part(std::size_t index);
  bool minus(std::size_t index);

  // Operands as rows. `wider`: a register larger than the type will do (cvt, ld, st).
  bool source(const Operand& operand, Type type, Row& row, bool wider = false);
  bool source(std::size_t index, Type type, Row& row) { return source(operand(index), type, row); }
  bool destination(const Operand& operand, Type type, Row& row, bool wider = false);
  bool destination(std::size_t index, Type type, Row& row) {
    return destination(operand(index), type, row);
  }
  bool predicate_source(const Operand& operand, std::uint32_t& predicate);
  bool predicate_destination(const Operand& operand, std::uint32_t& predicate);
  // The base row and offset of an address; rows are 8 bytes wide (narrow ones are extended).
  bool address(const Operand& operand, Space space, Row& row, std::int64_t& offset);
  bool integer(const Operand& operand, std::uint64_t& value);  // An immediate.
  Row temporary(unsigned bytes);
  bool constant(std::uint64_t value, unsigned bytes, Row& row);

  bool emit(Step step);
  bool emit_unguarded(Step step);
  bool refuse(std::string reason);
  bool refuse_form() { return refuse("is not supported"); }
  bool handler(Handler handler, Step& step) {
    step.handler = handler;
    return handler != nullptr || refuse("has a type that is not supported");
  }
  std::uint32_t add_rows(const std::vector<Row>& rows);
  std::uint32_t next_step() const { return static_cast<std::uint32_t>(program_.steps.size()); }
  // Where the label stands becomes the step's `extra` when all steps are known.
  bool emit_branch(Step step, std::uint32_t label);
  std::uint32_t add_table(const std::vector<std::uint32_t>& labels);

  Program& program() { return program_; }
  const Module& module() const { return *program_.module; }
  const Function& function() const { return function_; }
  const Code& code() const { return function_.code; }
  References& references() { return *references_; }
  Row register_row(std::uint32_t index);
  std::uint32_t predicate_index(std::uint32_t index);
  std::uint32_t new_predicate();

 private:
  bool instruction(const Instruction& instruction);
  bool prologue();
  bool body();
  bool stretch(const Stretch& stretch, std::uint32_t following);
  bool emit_jump(std::uint32_t instruction);
  bool special(const Operand& operand, Type type, Row& row);
  bool address_of(const Operand& operand, Type type, Row& row);
  bool element_of(const Operand& operand, Type type, Row& row);
  bool space_matches(const Operand& operand, Space space) const;
  bool immediate(const Operand& operand, Type type, Row& row);
  bool finish_branches();
  Row new_row(unsigned bytes);

  Program& program_;
  ConstantPool& constants_;
  const std::uint32_t function_index_;
  const Function& function_;
  JitLog* log_;
  References* references_ = nullptr;
  const Instruction* instruction_ = nullptr;
  std::uint32_t taken_ = 0;    // A bit a modifier.
  std::uint32_t parts_ = 0;    // A bit an operand whose part was asked for.
  std::uint32_t negated_ = 0;  // The same of its sign.
  std::string error_;
  std::vector<Row> register_rows_;  // Of each register; kUnplaced until its first use.
  std::vector<std::uint32_t> predicates_;
  std::uint32_t bytes32_ = 0;
  std::uint32_t bytes64_ = 0;
  std::uint32_t predicate_count_ = 0;
  std::vector<Row> temporaries32_;
  std::vector<Row> temporaries64_;
  std::size_t used32_ = 0;
  std::size_t used64_ = 0;
  std::vector<std::uint32_t> step_of_;   // First step of each instruction.
  std::vector<std::uint32_t> branches_;  // Steps whose `extra` is still an instruction.
  std::vector<std::uint32_t> tables_;    // Tables that still hold labels.
};

// Does any family have it? What it refuses of an instruction is the family's business.
bool opcode_known(std::string_view opcode);

// One a family; the switch in dispatch.cc knows which opcode is whose.
bool select_integer(Selector& s);
bool select_bits(Selector& s);
bool select_carry(Selector& s);
bool select_float(Selector& s);
bool select_float_pairs(Selector& s);  // .f32x2
bool select_half(Selector& s, Type type);
bool select_compare(Selector& s);
bool select_convert(Selector& s);
bool select_move(Selector& s);
bool select_memory(Selector& s);
bool select_address(Selector& s);
bool select_atomic(Selector& s);
bool select_warp(Selector& s);
bool select_control(Selector& s);
bool select_call(Selector& s);
bool select_barrier(Selector& s);
bool select_async(Selector& s);
bool select_bulk(Selector& s);
bool select_store_async(Selector& s);   // st.async
bool select_reduce_async(Selector& s);  // red.async
bool select_matrix(Selector& s);
bool select_tensor_map(Selector& s);  // tensormap
bool select_video(Selector& s);
bool select_scalar_video(Selector& s);
bool video_known(std::uint32_t opcode);
bool scalar_video_known(std::uint32_t opcode);
bool select_texture(Selector& s);
bool select_surface(Selector& s);

Space take_space(Selector& s);  // kGeneric where none is named.

// Handlers that the selector itself needs.
Flow read_special(Warp& warp, const Step& step, Mask lanes);
bool special_known(std::uint32_t name, unsigned& bytes);
bool is_fourth_component(std::uint32_t name);  // %tid.w and the like, which are 0.
Flow frame_address(Warp& warp, const Step& step, Mask lanes);
Flow passed_address(Warp& warp, const Step& step, Mask lanes);
Flow widen_address(Warp& warp, const Step& step, Mask lanes);
template <class Index>
Flow element_address(Warp& warp, const Step& step, Mask lanes);
Flow branch(Warp& warp, const Step& step, Mask lanes);
Flow end_of_kernel(Warp& warp, const Step& step, Mask lanes);
Flow end_of_function(Warp& warp, const Step& step, Mask lanes);
Flow copy_row32(Warp& warp, const Step& step, Mask lanes);
Flow copy_row64(Warp& warp, const Step& step, Mask lanes);
Flow load_parameter_register(Warp& warp, const Step& step, Mask lanes);
Flow store_return_register(Warp& warp, const Step& step, Mask lanes);

}  // namespace flyt::ptx
