// Parser: PTX text into a Module. Internal to the folder; module.h is the way in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "softgpu/ptx/lexer.h"
#include "softgpu/ptx/module.h"
#include "softgpu/ptx/types.h"

namespace flyt::ptx {

// Builds the private parts of a Module.
class ModuleBuilder {
 public:
  std::vector<Function>& functions() { return module_->functions_; }
  std::vector<Variable>& variables() { return module_->variables_; }
  void set_version(std::uint32_t major, std::uint32_t minor) {
    module_->version_major_ = major;
    module_->version_minor_ = minor;
  }
  void set_target(std::uint32_t target, std::string_view suffix) {
    module_->target_ = target;
    module_->target_suffix_ = suffix;
  }
  const Module& module() const { return *module_; }
  // Makes the indices; the builder is empty afterwards.
  std::shared_ptr<const Module> finish();

 private:
  std::shared_ptr<Module> module_ = std::make_shared<Module>();
};

// Methods return false once something was refused; the first refusal is kept. Use once.
class Parser {
 public:
  Parser(std::string_view text, JitLog* log) : lexer_(text), log_(log) {}
  Result<std::shared_ptr<const Module>> run();

 private:
  // What a name stands for inside a function.
  struct Entity {
    enum class Kind : std::uint8_t {
      kRegister,
      kFrame,
      kVariable,
      kParameter,
      kReturn,
      kTable,
      kPrototype
    };
    Kind kind = Kind::kRegister;
    std::uint32_t index = 0;
    std::uint32_t depth = 0;  // Of the block that declared it.
    std::uint16_t width = 1;  // Of a register: this many from `index` on are one vector.
  };
  // What the names %r0, %r1 ... of a declaration as %r<8> stand for.
  struct Range {
    Entity::Kind kind = Entity::Kind::kRegister;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    std::uint16_t width = 1;
  };
  // A label that was named before it was seen. It sits in an operand or in a branch table.
  struct PendingLabel {
    std::string_view name;
    bool in_table = false;
    std::uint32_t table = 0;
    std::uint32_t index = 0;
    std::uint32_t line = 0;
  };
  struct Scope {
    std::vector<std::pair<std::string_view, Entity>> hidden;  // Names it took from outer ones.
    std::vector<std::string_view> names;                      // Its own.
    std::vector<std::pair<std::string_view, Range>> hidden_ranges;
    std::vector<std::string_view> ranges;
    std::unordered_map<std::string_view, std::uint32_t> labels;
    std::vector<PendingLabel> pending;
    std::uint32_t frame_offset = 0;
  };
  struct Shape {  // Of a declared variable or parameter.
    std::string_view name;
    TypeFacts type;
    Opaque opaque = Opaque::kNone;
    std::uint32_t align = 0;
    std::uint64_t size = 0;
    std::uint64_t element_count = 1;
    bool array = false;
    bool unsized = false;
    std::vector<std::uint64_t> bounds;  // Of each dimension; the first may be 0 (unsized).
  };
  struct Value {  // Of a constant expression.
    bool is_float = false;
    std::uint64_t bits = 0;  // An integer, or a double.
    bool is_single = false;  // 0f...: bits are a float.
    bool is_unsigned = false;
  };

  // parser.cc: tokens, module level.
  bool fail(std::string message);
  bool fail_at(std::uint32_t line, std::string message);
  void advance() { token_ = lexer_.next(); }
  bool accept(std::string_view punctuation);
  bool expect(std::string_view punctuation);
  bool accept_word(std::string_view word);
  bool expect_identifier(std::string_view& name);
  bool expect_count(std::uint32_t& value, std::uint64_t max);
  bool module();
  bool version();
  bool target();
  bool module_directive();
  bool linkage(Linkage& linkage);
  bool attribute(bool& managed);
  bool skip_braces();
  bool alias();

  // parser_function.cc: signatures and bodies.
  bool function(bool kernel, Linkage linkage);
  bool function_bounds(Function& function);
  bool dimensions(std::array<std::uint32_t, 3>& into);
  bool parameter_list(std::vector<Parameter>& into, std::uint64_t& offset, bool declare);
  bool return_list(std::vector<Parameter>& into, std::uint64_t& offset, bool declare);
  bool parameter(Parameter& into, std::uint64_t& offset, bool declare);
  bool enter_function(Function& function);
  bool declare_parameters(Function& function);
  bool body();
  bool statement();
  bool body_directive();
  bool registers();
  bool one_register(TypeFacts type, std::uint16_t width);
  bool frame_variable();
  bool add_to_frame(const Shape& shape);
  bool labelled(std::string_view name, std::uint32_t line);
  bool branch_targets(std::string_view name);
  bool call_targets(std::string_view name);
  bool call_prototype(std::string_view name);
  bool push_scope();
  bool pop_scope();
  bool declare(std::string_view name, Entity entity);
  bool range_of_names(std::optional<std::uint32_t>& count);
  void declare_range(std::string_view name, Range range);
  std::uint32_t new_register(Register shape);

  // parser_operand.cc: instructions.
  bool guarded();
  bool instruction(Token opcode, std::int32_t guard, bool negated);
  bool operand_list(std::vector<Operand>& into);
  bool operand(Operand& into);
  bool operand_atom(Operand& into);
  bool memory_operand(Operand& into);
  bool image_operand(Operand& into);
  bool vector_operand(Operand& into, std::string_view close);
  bool number_operand(Operand& into);
  bool name_operand(Operand& into);
  bool name_in_function(std::string_view name, Operand& into);
  bool vector_register(Operand& into);
  bool offset(Operand& into);
  bool subscript(Operand& into);
  bool subscript_register(std::uint32_t index);
  std::uint32_t element_bytes(const Operand& variable);
  bool find_register(std::string_view name, std::uint32_t& index) const;
  std::optional<Entity> find_name(std::string_view name) const;
  std::uint32_t spelling(const std::string& text);

  // parser_constant.cc
  static bool is_name(const Token& token) {
    return token.kind == Token::Kind::kIdentifier && token.text != "WARP_SZ";
  }
  bool constant(Value& value, unsigned depth = 0);
  bool constant_offset(std::int64_t& bytes);
  bool combine_floats(std::size_t op, Value& left, const Value& right);
  bool constant_binary(Value& value, unsigned level, unsigned depth);
  bool constant_unary(Value& value, unsigned depth);

  // parser_variable.cc: module variables and initialisers.
  bool variable(Space space, Linkage linkage, bool in_function);
  bool one_variable(Variable made, bool in_function, const Shape& common);
  bool add_variable(Variable made, bool in_function, std::string_view spelled);
  bool add_variables(const Variable& made, bool in_function, std::string_view spelled,
                     std::uint32_t count);
  bool shape_words(Shape& shape);
  bool array_bounds(Shape& shape);
  bool initializer(Variable& variable, Shape& shape);
  bool initializer_list(Variable& variable, const Shape& shape, std::uint64_t& at, unsigned depth);
  bool initial_value(Variable& variable, const Shape& shape, std::uint64_t at);
  bool masked_symbol(Variable& variable, const Shape& shape, std::uint64_t at, std::uint64_t mask);
  bool reserve_initial(Variable& variable, std::uint64_t bytes);
  bool symbol_address(Relocation& relocation);
  bool store_constant(Variable& variable, const Shape& shape, std::uint64_t at, Value value);

  Function& current() { return builder_.functions()[function_]; }
  Code& code() { return current().code; }

  Lexer lexer_;
  JitLog* log_;
  Token token_;
  ModuleBuilder builder_;
  bool failed_ = false;
  std::string error_;
  std::uint64_t instruction_count_ = 0;
  std::uint64_t register_count_ = 0;
  bool in_call_ = false;  // Of the instruction that is read: parentheses are lists.
  std::uint64_t initial_bytes_ = 0;

  std::unordered_map<std::string, std::uint32_t> function_names_;
  std::unordered_map<std::string, std::uint32_t> variable_names_;

  // Of the function being read.
  std::uint32_t function_ = 0;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string_view, Entity> names_;
  std::unordered_map<std::string_view, Range> ranges_;
  std::unordered_map<std::string, std::uint32_t> spellings_;
  std::uint32_t frame_offset_ = 0;
};

}  // namespace flyt::ptx
