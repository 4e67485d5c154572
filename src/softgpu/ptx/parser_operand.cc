
#include "softgpu/ptx/parser.h"

namespace flyt::ptx {

bool Parser::guarded() {
  const bool negated = accept("!");
  std::string_view name;
  if (!expect_identifier(name)) return false;
  std::uint32_t index = 0;
  if (!find_register(name, index)) return fail("Unknown symbol '" + std::string(name) + "'");
  if (code().registers[index].kind != Register::Kind::kPredicate) {
    return fail("'" + std::string(name) + "' is no predicate");
  }
  if (token_.kind != Token::Kind::kIdentifier) return fail("expected an instruction");
  const Token opcode = token_;
  advance();
  return instruction(opcode, static_cast<std::int32_t>(index), negated);
}

std::uint32_t Parser::spelling(const std::string& text) {
  const auto next = static_cast<std::uint32_t>(code().spellings.size());
  const auto [found, added] = spellings_.try_emplace(text, next);
  if (added) code().spellings.push_back(text);
  return found->second;
}

bool Parser::instruction(Token opcode, std::int32_t guard, bool negated) {
  if (++instruction_count_ > kInstructionsMax) return fail("too many instructions");
  Instruction made;
  made.opcode = {hash_of(opcode.text)};
  made.guard = guard;
  made.guard_negated = negated;
  made.line = opcode.line;
  made.first_modifier = static_cast<std::uint32_t>(code().modifiers.size());
  std::string spelled(opcode.text);
  while (token_.kind == Token::Kind::kDotWord) {
    if (made.modifier_count == 32) return fail("too many modifiers");
    ++made.modifier_count;
    code().modifiers.push_back({hash_of(token_.text)});
    spelled += '.';
    spelled += token_.text;
    advance();
  }
  if (spelled.size() > 256) return fail("too many modifiers");
  made.text = spelling(spelled);
  std::vector<Operand> operands;
  in_call_ = opcode.text == "call";
  if (!token_.is(";") && !operand_list(operands)) return false;
  if (!expect(";")) return false;
  if (operands.size() > kParametersMax) return fail("too many operands");
  made.first_operand = static_cast<std::uint32_t>(code().operands.size());
  made.operand_count = static_cast<std::uint16_t>(operands.size());
  for (const Operand& operand : operands) code().operands.push_back(operand);
  // Labels were noted by their place in the list; now the place in the function is known.
  for (auto pending = scopes_.back().pending.rbegin();
       pending != scopes_.back().pending.rend() && pending->index == ~std::uint32_t{0}; ++pending) {
    pending->index = made.first_operand + pending->table;
  }
  code().instructions.push_back(made);
  return true;
}

bool Parser::operand_list(std::vector<Operand>& into) {
  for (;;) {
    if (into.size() > kParametersMax) return fail("too many operands");
    Operand made;
    if (!operand(made)) return false;
    if (made.kind == Operand::Kind::kLabel && !made.memory) {
      PendingLabel& pending = scopes_.back().pending.back();
      pending.table = static_cast<std::uint32_t>(into.size());
    }
    into.push_back(made);
    if (accept("|")) {
      Operand second;
      if (!operand_atom(second)) return false;
      if (second.kind == Operand::Kind::kLabel) return fail("a label is no predicate");
      second.paired = true;
      into.push_back(second);
    }
    if (!accept(",")) return true;
  }
}

bool Parser::operand(Operand& into) {
  if (accept("[")) return memory_operand(into);
  if (accept("{")) return vector_operand(into, "}");
  // Elsewhere a constant expression may begin with it.
  if (in_call_ && accept("(")) {
    if (!vector_operand(into, ")")) return false;
    into.paren = true;
    return true;
  }
  if (!operand_atom(into)) return false;
  if (into.kind != Operand::Kind::kRegister || token_.kind != Token::Kind::kDotWord) return true;
  into.part = spelling(std::string(token_.text)) + 1;
  advance();
  return true;
}

bool Parser::vector_operand(Operand& into, std::string_view close) {
  std::vector<Operand> elements;
  if (!token_.is(close)) {
    do {
      if (elements.size() >= kParametersMax) return fail("too many operands");
      Operand element;
      if (!operand_atom(element)) return false;
      if (element.kind == Operand::Kind::kLabel) return fail("a label cannot stand here");
      if (element.element_bytes != 0) return fail("an element of an array cannot stand here");
      elements.push_back(element);
    } while (accept(","));
  }
  into.kind = Operand::Kind::kVector;
  into.index = static_cast<std::uint32_t>(code().operands.size());
  into.count = static_cast<std::uint16_t>(elements.size());
  for (const Operand& element : elements) code().operands.push_back(element);
  return expect(close);
}

bool Parser::memory_operand(Operand& into) {
  if (!operand_atom(into)) return false;
  if (into.kind == Operand::Kind::kLabel) return fail("a label is no address");
  if (into.element_bytes != 0) return fail("an element of an array stands in brackets");
  into.memory = true;
  if (accept(",")) return image_operand(into);
  return expect("]");
}

// [name, {x, y}]: a vector of the name, what else stands there, and a vector of coordinates.
bool Parser::image_operand(Operand& into) {
  constexpr std::size_t kPartsMax = 4;
  std::vector<Operand> parts = {into};
  parts.front().memory = false;
  do {
    Operand part;
    if (parts.size() == kPartsMax) return fail("too many operands");
    if (accept("{") ? !vector_operand(part, "}") : !operand_atom(part)) return false;
    if (part.kind == Operand::Kind::kLabel) return fail("a label cannot stand here");
    if (part.element_bytes != 0) return fail("an element of an array cannot stand here");
    parts.push_back(part);
  } while (accept(","));
  into = Operand{};
  into.kind = Operand::Kind::kVector;
  into.memory = true;
  into.index = static_cast<std::uint32_t>(code().operands.size());
  into.count = static_cast<std::uint16_t>(parts.size());
  for (const Operand& part : parts) code().operands.push_back(part);
  return expect("]");
}

bool Parser::operand_atom(Operand& into) {
  if (token_.is("!")) {
    Lexer ahead = lexer_;
    if (!is_name(ahead.next())) return number_operand(into);
    advance();
    if (!name_operand(into)) return fail("malformed operand");
    if (into.kind != Operand::Kind::kRegister) return fail("malformed operand");
    into.negated = true;
    return true;
  }
  if (is_name(token_)) return name_operand(into);
  if (token_.is("-")) {
    Lexer ahead = lexer_;
    std::uint32_t index = 0;
    const Token next = ahead.next();
    if (next.kind == Token::Kind::kIdentifier && find_register(next.text, index)) {
      advance();
      into.minus = true;
      return name_operand(into);
    }
  }
  return number_operand(into);
}

bool Parser::number_operand(Operand& into) {
  Value value;
  if (!constant(value)) return false;
  into.bits = value.bits;
  into.kind = !value.is_float   ? Operand::Kind::kInteger
              : value.is_single ? Operand::Kind::kFloat32
                                : Operand::Kind::kFloat64;
  return true;
}

// foo, foo+4, foo-4, foo+-4, foo+4*3, foo[4]
bool Parser::offset(Operand& into) {
  return token_.is("[") ? subscript(into) : constant_offset(into.value);
}

// What stands in the brackets counts scalars, in all dimensions and of vectors too, and offsets
// have 32 bits without a sign, as ptxas has it.
bool Parser::subscript(Operand& into) {
  into.element_bytes = element_bytes(into);
  if (into.element_bytes == 0) return fail("Array indexing on non-array");
  advance();
  Value added;
  std::uint32_t index = 0;
  const bool variable =
      token_.kind == Token::Kind::kIdentifier && find_register(token_.text, index);
  if (variable) {
    if (!subscript_register(index)) return false;
    into.subscript = index + 1;
    if (accept("+") && !constant(added)) return false;
  } else if (!constant(added)) {
    return false;
  }
  if (added.is_float) return fail("Integer constant expression expected");
  into.value = static_cast<std::uint32_t>(added.bits * into.element_bytes);
  return expect("]");
}

bool Parser::subscript_register(std::uint32_t index) {
  const Register& shape = code().registers[index];
  const bool number = shape.kind == Register::Kind::kInteger ||
                      (shape.kind == Register::Kind::kUntyped && shape.bytes != 16);
  if (!number || shape.bytes < 2) {
    return fail("Illegal to use symbol '" + std::string(token_.text) + "' as array index");
  }
  advance();
  return true;
}

// 0: no array.
std::uint32_t Parser::element_bytes(const Operand& variable) {
  switch (variable.kind) {
    case Operand::Kind::kVariable:
      return builder_.variables()[variable.index].element_bytes;
    case Operand::Kind::kFrame:
      return code().frame[variable.index].element_bytes;
    case Operand::Kind::kParameter:
      return current().parameters[variable.index].element_bytes;
    case Operand::Kind::kReturn:
      return current().returns[variable.index].element_bytes;
    case Operand::Kind::kRegister:
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat32:
    case Operand::Kind::kFloat64:
    case Operand::Kind::kSpecial:
    case Operand::Kind::kFunction:
    case Operand::Kind::kLabel:
    case Operand::Kind::kTable:
    case Operand::Kind::kPrototype:
    case Operand::Kind::kVector:
    case Operand::Kind::kSink:
      return 0;
  }
  return 0;
}

bool Parser::find_register(std::string_view name, std::uint32_t& index) const {
  const auto found = find_name(name);
  if (!found.has_value() || found->kind != Entity::Kind::kRegister || found->width > 1) {
    return false;
  }
  index = found->index;
  return true;
}

std::optional<Parser::Entity> Parser::find_name(std::string_view name) const {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  std::size_t digits = 0;
  while (digits < name.size() && digits < 7 && name[name.size() - 1 - digits] >= '0' &&
         name[name.size() - 1 - digits] <= '9') {
    ++digits;
  }
  std::uint32_t number = 0;
  std::uint32_t scale = 1;
  // A prefix may itself end in digits, so every split is tried, the longest prefix first.
  for (std::size_t i = 1; i <= digits; ++i) {
    const char digit = name[name.size() - i];
    number += static_cast<std::uint32_t>(digit - '0') * scale;
    scale *= 10;
    if (digit == '0' && i > 1) continue;
    const auto range = ranges_.find(name.substr(0, name.size() - i));
    if (range != ranges_.end() && number < range->second.count) {
      const Range& all = range->second;
      return Entity{all.kind, all.first + number * all.width, 0, all.width};
    }
  }
  return std::nullopt;
}

bool Parser::name_in_function(std::string_view name, Operand& into) {
  const auto found = find_name(name);
  if (!found.has_value()) return false;
  into.index = found->index;
  switch (found->kind) {
    case Entity::Kind::kRegister:
      into.kind = Operand::Kind::kRegister;
      into.count = found->width;
      break;
    case Entity::Kind::kFrame:
      into.kind = Operand::Kind::kFrame;
      break;
    case Entity::Kind::kVariable:
      into.kind = Operand::Kind::kVariable;
      break;
    case Entity::Kind::kParameter:
      into.kind = Operand::Kind::kParameter;
      break;
    case Entity::Kind::kReturn:
      into.kind = Operand::Kind::kReturn;
      break;
    case Entity::Kind::kTable:
      into.kind = Operand::Kind::kTable;
      break;
    case Entity::Kind::kPrototype:
      into.kind = Operand::Kind::kPrototype;
      break;
  }
  return true;
}

// %v as {its registers}, or one of them: %v.x
bool Parser::vector_register(Operand& into) {
  const Operand whole = into;
  into = Operand{};
  into.count = whole.count;
  if (token_.kind != Token::Kind::kDotWord) {
    into.kind = Operand::Kind::kVector;
    into.index = static_cast<std::uint32_t>(code().operands.size());
    for (std::uint32_t i = 0; i < whole.count; ++i) {
      Operand element;
      element.kind = Operand::Kind::kRegister;
      element.index = whole.index + i;
      code().operands.push_back(element);
    }
    return true;
  }
  std::size_t component = std::string_view::npos;
  for (const std::string_view names : {"xyzw", "rgba"}) {
    const std::size_t found = names.find(token_.text);
    if (token_.text.size() == 1 && found != std::string_view::npos) component = found;
  }
  if (component >= whole.count) {
    return fail("'." + std::string(token_.text) + "' is no component of this vector");
  }
  advance();
  into.kind = Operand::Kind::kRegister;
  into.count = 0;
  into.index = whole.index + static_cast<std::uint32_t>(component);
  return offset(into);
}

bool Parser::name_operand(Operand& into) {
  const Token name = token_;
  advance();
  if (name.text == "_") {
    into.kind = Operand::Kind::kSink;
    return true;
  }
  if (name_in_function(name.text, into)) {
    const bool vector = into.count > 1;
    if (!vector) into.count = 0;
    return vector ? vector_register(into) : offset(into);
  }
  if (name.text[0] == '%') {
    std::string spelled(name.text);
    while (token_.kind == Token::Kind::kDotWord) {
      spelled += '.';
      spelled += token_.text;
      advance();
    }
    into.kind = Operand::Kind::kSpecial;
    into.bits = hash_of(spelled);
    into.index = spelling(spelled);
    return true;
  }
  const std::string key(name.text);
  if (const auto variable = variable_names_.find(key); variable != variable_names_.end()) {
    into.kind = Operand::Kind::kVariable;
    into.index = variable->second;
    return offset(into);
  }
  if (const auto function = function_names_.find(key); function != function_names_.end()) {
    into.kind = Operand::Kind::kFunction;
    into.index = function->second;
    return true;
  }
  into.kind = Operand::Kind::kLabel;
  scopes_.back().pending.push_back({name.text, false, 0, ~std::uint32_t{0}, name.line});
  return true;
}

}  // namespace flyt::ptx
