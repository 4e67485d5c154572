#include <algorithm>
#include <bit>

#include "softgpu/ptx/parser.h"

namespace flyt::ptx {

Prototype prototype_of(const std::vector<Parameter>& returns,
                       const std::vector<Parameter>& parameters) {
  const auto slots = [](const std::vector<Parameter>& list) {
    std::vector<Prototype::Slot> made;
    for (const Parameter& each : list) {
      made.push_back({each.size, each.align, each.offset, each.unsized});
    }
    return made;
  };
  return {slots(returns), slots(parameters)};
}

bool Parser::dimensions(std::array<std::uint32_t, 3>& into) {
  into = {1, 1, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!expect_count(into[i], 0x7fffffff)) return false;
    if (!accept(",")) return true;
  }
  return fail("more than three dimensions");
}

// What stands between the parameters and the body.
bool Parser::function_bounds(Function& function) {
  for (;;) {
    std::uint32_t ignored = 0;
    bool managed = false;
    if (accept_word("maxntid")) {
      if (!dimensions(function.maxntid)) return false;
    } else if (accept_word("reqntid")) {
      if (!dimensions(function.reqntid)) return false;
    } else if (accept_word("reqnctapercluster")) {
      if (!dimensions(function.reqnctapercluster)) return false;
    } else if (accept_word("minnctapersm")) {
      if (!expect_count(function.minnctapersm, 0xffffffff)) return false;
    } else if (accept_word("maxnreg")) {
      if (!expect_count(function.maxnreg, 0xffffffff)) return false;
    } else if (accept_word("maxclusterrank")) {
      if (!expect_count(function.maxclusterrank, 0xffffffff)) return false;
    } else if (accept_word("maxnctapersm") || accept_word("abi_preserve") ||
               accept_word("abi_preserve_control")) {
      if (!expect_count(ignored, 0xffffffff)) return false;
    } else if (accept_word("explicitcluster")) {
      function.explicitcluster = true;
    } else if (accept_word("noreturn") || accept_word("blocksareclusters")) {
      continue;
    } else if (accept_word("attribute")) {
      if (!attribute(managed)) return false;
    } else if (accept_word("pragma")) {
      while (token_.kind == Token::Kind::kString || token_.is(",")) advance();
      if (!expect(";")) return false;
    } else {
      return true;
    }
  }
}

bool Parser::parameter(Parameter& into, std::uint64_t& offset, bool declare) {
  Shape shape;
  const bool in_register = token_.is_word("reg");
  if (!accept_word("param") && !accept_word("reg")) return fail("expected .param");
  if (!shape_words(shape) || !expect_identifier(shape.name)) return false;
  if (!in_register && !array_bounds(shape)) return false;
  const std::uint64_t bytes = shape.type.bytes == 0 ? 4 : shape.type.bytes;
  into.unsized = shape.unsized;
  if (shape.array) into.element_bytes = static_cast<std::uint32_t>(bytes);
  shape.size = shape.unsized ? 8 : bytes * shape.element_count;
  const std::uint32_t natural = std::min<std::uint32_t>(static_cast<std::uint32_t>(bytes), 16);
  into.align = std::max(shape.align, shape.align == 0 ? natural : 1u);
  if (shape.unsized) into.align = 8;
  offset = align_up(offset, into.align);
  if (shape.size > kParameterBytesMax || offset + shape.size > kParameterBytesMax) {
    return fail("parameters are larger than " + std::to_string(kParameterBytesMax) + " bytes");
  }
  if (in_register && (shape.size > 8 || !std::has_single_bit(shape.size))) {
    return fail("register parameters of this size are not supported");
  }
  into.name = std::string(shape.name);
  into.offset = static_cast<std::uint32_t>(offset);
  into.size = static_cast<std::uint32_t>(shape.size);
  into.in_register = -1;
  if (in_register && declare) {
    into.in_register = static_cast<std::int32_t>(shape.type.bytes);  // Becomes a register later.
  }
  offset += shape.size;
  return true;
}

bool Parser::parameter_list(std::vector<Parameter>& into, std::uint64_t& offset, bool declare) {
  if (!expect("(")) return false;
  if (accept(")")) return true;
  do {
    if (into.size() >= kParametersMax) return fail("too many parameters");
    if (!into.empty() && into.back().unsized) {
      return fail("only the last parameter may be an array without a size");
    }
    Parameter made;
    if (!parameter(made, offset, declare)) return false;
    into.push_back(std::move(made));
  } while (accept(","));
  return expect(")");
}

bool Parser::return_list(std::vector<Parameter>& into, std::uint64_t& offset, bool declare) {
  if (!parameter_list(into, offset, declare)) return false;
  if (into.empty() || !into.back().unsized) return true;
  return fail("a function returns an array without a size");
}

bool Parser::function(bool kernel, Linkage linkage) {
  Function made;
  made.kernel = kernel;
  made.linkage = linkage;
  made.line = token_.line;
  std::uint64_t offset = 0;
  bool managed = false;
  if (accept_word("attribute") && !attribute(managed)) return false;
  if (!kernel && token_.is("(") && !return_list(made.returns, offset, true)) return false;
  std::string_view name;
  if (!expect_identifier(name)) return false;
  made.name = std::string(name);
  if (token_.is("(") && !parameter_list(made.parameters, offset, true)) return false;
  if (kernel && !made.parameters.empty() && made.parameters.back().unsized) {
    return fail("a kernel has a parameter without a size");
  }
  made.parameter_bytes = static_cast<std::uint32_t>(offset);
  if (!function_bounds(made)) return false;

  auto& functions = builder_.functions();
  const auto [entry, added] =
      function_names_.try_emplace(made.name, static_cast<std::uint32_t>(functions.size()));
  if (added) {
    if (functions.size() >= kFunctionsMax) return fail("too many functions");
    functions.push_back(made);
  }
  function_ = entry->second;
  if (accept(";")) return true;
  if (!token_.is("{")) return fail("expected ';' or '{'");
  if (current().defined) return fail("Duplicate definition of function '" + made.name + "'");
  // A definition after a declaration: the weaker linkage word of the two does not get lost.
  if (!added && made.linkage == Linkage::kInternal && current().linkage != Linkage::kExtern) {
    made.linkage = current().linkage;
  }
  made.defined = true;
  current() = std::move(made);
  return enter_function(current()) && body();
}

bool Parser::enter_function(Function& function) {
  scopes_.clear();
  names_.clear();
  ranges_.clear();
  spellings_.clear();
  frame_offset_ = function.kernel ? 0 : function.parameter_bytes;
  function.code = Code{};
  function.code.frame_bytes = frame_offset_;
  return push_scope() && declare_parameters(function);
}

bool Parser::declare_parameters(Function& function) {
  // The names must outlive the reading of the body: the function owns its strings, but may be
  // moved in its vector only by another declaration, of which a body has none.
  const auto add = [&](std::vector<Parameter>& list, Entity::Kind kind) {
    for (std::uint32_t i = 0; i < list.size(); ++i) {
      Parameter& parameter = list[i];
      if (parameter.in_register >= 0) {
        Register shape;
        shape.bytes = static_cast<std::uint8_t>(parameter.in_register);
        if (shape.bytes == 0) shape.kind = Register::Kind::kPredicate;
        parameter.in_register = static_cast<std::int32_t>(new_register(shape));
        if (!declare(parameter.name, {Entity::Kind::kRegister,
                                      static_cast<std::uint32_t>(parameter.in_register), 0}))
          return false;
      } else if (parameter.name != "_" && !declare(parameter.name, {kind, i, 0})) {
        return false;
      }
    }
    return true;
  };
  return add(function.returns, Entity::Kind::kReturn) &&
         add(function.parameters, Entity::Kind::kParameter);
}

bool Parser::push_scope() {
  if (scopes_.size() >= kNestingMax) return fail("blocks are nested too deeply");
  scopes_.emplace_back();
  scopes_.back().frame_offset = frame_offset_;
  return true;
}

// Leaves a block: labels named in it meet those defined in it, the others wait for the outer one.
bool Parser::pop_scope() {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (PendingLabel& pending : scope.pending) {
    const auto found = scope.labels.find(pending.name);
    if (found != scope.labels.end()) {
      if (pending.in_table) {
        code().tables[pending.table][pending.index] = found->second;
      } else {
        code().operands[pending.index].index = found->second;
      }
    } else if (scopes_.empty()) {
      return fail_at(pending.line, "Unknown symbol '" + std::string(pending.name) + "'");
    } else {
      scopes_.back().pending.push_back(pending);
    }
  }
  for (const std::string_view name : scope.names) names_.erase(name);
  for (const auto& [name, entity] : scope.hidden) names_[name] = entity;
  for (const std::string_view name : scope.ranges) ranges_.erase(name);
  for (const auto& [name, range] : scope.hidden_ranges) ranges_[name] = range;
  frame_offset_ = scope.frame_offset;
  return true;
}

bool Parser::declare(std::string_view name, Entity entity) {
  Scope& scope = scopes_.back();
  entity.depth = static_cast<std::uint32_t>(scopes_.size());
  const auto [found, added] = names_.try_emplace(name, entity);
  if (!added) {
    if (found->second.depth == entity.depth) {
      return fail("Duplicate definition of variable '" + std::string(name) + "'");
    }
    scope.hidden.emplace_back(name, found->second);
    found->second = entity;
  }
  scope.names.push_back(name);
  return true;
}

bool Parser::body() {
  if (!expect("{")) return false;
  const std::size_t outermost = scopes_.size();
  for (;;) {
    if (token_.is("}") && scopes_.size() == outermost) break;
    if (!statement()) return false;
  }
  if (!pop_scope()) return false;
  advance();
  code().frame_bytes = static_cast<std::uint32_t>(align_up(code().frame_bytes, 16));
  return true;
}

bool Parser::statement() {
  if (accept("{")) return push_scope();
  if (accept("}")) return pop_scope();
  if (accept(";")) return true;
  if (token_.kind == Token::Kind::kDotWord) return body_directive();
  if (accept("@")) return guarded();
  if (token_.kind != Token::Kind::kIdentifier) {
    return fail("Parsing error near '" + std::string(token_.text) + "'");
  }
  const Token first = token_;
  advance();
  if (accept(":")) return labelled(first.text, first.line);
  return instruction(first, -1, false);
}

bool Parser::body_directive() {
  if (token_.is_word("loc") || token_.is_word("file")) {
    lexer_.skip_line();
    advance();
    return true;
  }
  if (accept_word("pragma")) {
    while (token_.kind == Token::Kind::kString || token_.is(",")) advance();
    return expect(";");
  }
  if (accept_word("reg")) return registers();
  if (accept_word("local") || accept_word("param")) return frame_variable();
  if (accept_word("shared")) return variable(Space::kShared, Linkage::kInternal, true);
  if (accept_word("extern")) {
    if (!accept_word("shared")) return fail("only .shared can be .extern in a function");
    return variable(Space::kShared, Linkage::kExtern, true);
  }
  if (accept_word("global")) return variable(Space::kGlobal, Linkage::kInternal, true);
  if (accept_word("const")) return variable(Space::kConst, Linkage::kInternal, true);
  return fail("Parsing error near '." + std::string(token_.text) + "'");
}

std::uint32_t Parser::new_register(Register shape) {
  code().registers.push_back(shape);
  return static_cast<std::uint32_t>(code().registers.size() - 1);
}

bool Parser::registers() {
  Shape shape;
  if (!shape_words(shape)) return false;
  const auto width = static_cast<std::uint16_t>(shape.element_count);
  if (width > 1 && shape.type.kind == Register::Kind::kPredicate) {
    return fail("a vector cannot be of predicates");
  }
  do {
    if (!one_register(shape.type, width)) return false;
  } while (accept(","));
  return expect(";");
}

bool Parser::one_register(TypeFacts type, std::uint16_t width) {
  std::string_view name;
  if (!expect_identifier(name)) return false;
  const Register shape{type.kind, type.bytes, type.is_signed};
  std::optional<std::uint32_t> range;
  if (!range_of_names(range)) return false;
  const std::size_t count = std::size_t{range.value_or(1)} * width;
  register_count_ += count;
  if (code().registers.size() + count > kRegistersMax || register_count_ > kAllRegistersMax) {
    return fail("too many registers");
  }
  const auto first = static_cast<std::uint32_t>(code().registers.size());
  code().registers.resize(first + count, shape);
  if (!range.has_value()) return declare(name, {Entity::Kind::kRegister, first, 0, width});
  declare_range(name, {Entity::Kind::kRegister, first, *range, width});
  return true;
}

// name<8> declares name0 to name7, whatever the space.
bool Parser::range_of_names(std::optional<std::uint32_t>& count) {
  if (!accept("<")) return true;
  return expect_count(count.emplace(), kRegistersMax) && expect(">");
}

void Parser::declare_range(std::string_view name, Range range) {
  const auto [found, added] = ranges_.try_emplace(name, range);
  if (!added) {
    scopes_.back().hidden_ranges.emplace_back(name, found->second);
    found->second = range;
  }
  scopes_.back().ranges.push_back(name);
}

// .local and .param variables live in the frame of the thread.
bool Parser::frame_variable() {
  Shape common;
  if (!shape_words(common)) return false;
  do {
    Shape shape = common;
    std::optional<std::uint32_t> range;
    if (!expect_identifier(shape.name) || !range_of_names(range) || !array_bounds(shape)) {
      return false;
    }
    const auto first = static_cast<std::uint32_t>(code().frame.size());
    for (std::uint32_t i = 0; i < range.value_or(1); ++i) {
      if (!add_to_frame(shape)) return false;
    }
    if (range.has_value()) {
      declare_range(shape.name, {Entity::Kind::kFrame, first, *range});
    } else if (!declare(shape.name, {Entity::Kind::kFrame, first, 0})) {
      return false;
    }
  } while (accept(","));
  return expect(";");
}

bool Parser::add_to_frame(const Shape& shape) {
  const std::uint32_t bytes = std::max<std::uint32_t>(shape.type.bytes, 1);
  FrameVariable made;
  made.size = bytes * shape.element_count;
  made.align = shape.align == 0 ? bytes : shape.align;
  if (shape.array) made.element_bytes = bytes;
  const std::uint64_t offset = align_up(frame_offset_, made.align);
  if (made.size > kLocalBytesMax || offset + made.size > kLocalBytesMax) {
    return fail("local memory of a function is larger than the limit");
  }
  made.offset = static_cast<std::uint32_t>(offset);
  frame_offset_ = static_cast<std::uint32_t>(offset + made.size);
  code().frame_bytes = std::max(code().frame_bytes, frame_offset_);
  code().frame.push_back(made);
  return true;
}

bool Parser::labelled(std::string_view name, std::uint32_t line) {
  if (accept_word("branchtargets")) return branch_targets(name);
  if (accept_word("calltargets")) return call_targets(name);
  if (accept_word("callprototype")) return call_prototype(name);
  const auto index = static_cast<std::uint32_t>(code().labels.size());
  if (!scopes_.back().labels.try_emplace(name, index).second) {
    return fail_at(line, "Duplicate definition of label '" + std::string(name) + "'");
  }
  code().labels.push_back(static_cast<std::uint32_t>(code().instructions.size()));
  return true;
}

bool Parser::branch_targets(std::string_view name) {
  const auto table = static_cast<std::uint32_t>(code().tables.size());
  code().tables.emplace_back();
  do {
    std::string_view label;
    const std::uint32_t line = token_.line;
    if (!expect_identifier(label)) return false;
    const auto index = static_cast<std::uint32_t>(code().tables[table].size());
    code().tables[table].push_back(0);
    scopes_.back().pending.push_back({label, true, table, index, line});
  } while (accept(","));
  return declare(name, {Entity::Kind::kTable, table, 0}) && expect(";");
}

// .calltargets names functions of one prototype; that of the first one serves.
bool Parser::call_targets(std::string_view name) {
  Prototype made;
  bool first = true;
  do {
    std::string_view function;
    if (!expect_identifier(function)) return false;
    const auto found = function_names_.find(std::string(function));
    if (found == function_names_.end()) {
      return fail("Unknown symbol '" + std::string(function) + "'");
    }
    const Function& shape = builder_.functions()[found->second];
    if (first) made = prototype_of(shape.returns, shape.parameters);
    first = false;
  } while (accept(","));
  code().prototypes.push_back(std::move(made));
  const auto index = static_cast<std::uint32_t>(code().prototypes.size() - 1);
  return declare(name, {Entity::Kind::kPrototype, index, 0}) && expect(";");
}

bool Parser::call_prototype(std::string_view name) {
  std::vector<Parameter> returns;
  std::vector<Parameter> parameters;
  std::uint64_t offset = 0;
  if (token_.is("(") && !return_list(returns, offset, false)) return false;
  std::string_view ignored;
  if (!expect_identifier(ignored)) return false;
  if (token_.is("(") && !parameter_list(parameters, offset, false)) return false;
  Function bounds;
  if (!function_bounds(bounds)) return false;
  code().prototypes.push_back(prototype_of(returns, parameters));
  const auto index = static_cast<std::uint32_t>(code().prototypes.size() - 1);
  return declare(name, {Entity::Kind::kPrototype, index, 0}) && expect(";");
}

}  // namespace flyt::ptx
