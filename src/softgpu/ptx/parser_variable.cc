#include <algorithm>
#include <bit>
#include <cstring>

#include "softgpu/ptx/parser.h"

namespace flyt::ptx {

// The words between the space and the name: .align 8 .v4 .f32, .u64 .ptr .global .align 4
bool Parser::shape_words(Shape& shape) {
  bool typed = false;
  while (token_.kind == Token::Kind::kDotWord) {
    const Token word = token_;
    advance();
    if (word.text == "align") {
      if (!expect_count(shape.align, kAlignMax)) return false;
      if (!std::has_single_bit(shape.align)) return fail("alignment is no power of two");
    } else if (word.text == "v2" || word.text == "v4" || word.text == "v8") {
      shape.element_count = static_cast<std::uint64_t>(word.text[1] - '0');
    } else if (word.text == "ptr") {
      // What it points to is of no concern here.
      std::uint32_t ignored = 0;
      while (token_.kind == Token::Kind::kDotWord) {
        const bool align = token_.is_word("align");
        advance();
        if (align && !expect_count(ignored, kAlignMax)) return false;
      }
    } else if (!typed && (word.text == "texref" || word.text == "surfref")) {
      shape.opaque = word.text == "texref" ? Opaque::kTexture : Opaque::kSurface;
      shape.type = {Register::Kind::kUntyped, 8};
      typed = true;
    } else if (const auto facts = type_facts(word.text); facts.has_value() && !typed) {
      shape.type = *facts;
      typed = true;
    } else {
      return fail_at(word.line, "Feature '." + std::string(word.text) + "' is not supported");
    }
  }
  if (!typed) return fail("expected a type");
  if (shape.align == 0 && shape.element_count > 1) {
    shape.align = std::min<std::uint32_t>(
        16, static_cast<std::uint32_t>(shape.type.bytes * shape.element_count));
    shape.align = std::max(shape.align, 1u);
  }
  return true;
}

bool Parser::array_bounds(Shape& shape) {
  constexpr std::uint64_t kElementsMax = kVariableBytesMax;
  while (accept("[")) {
    if (shape.bounds.size() >= 16) return fail("too many dimensions");
    std::uint64_t bound = 0;
    if (token_.is("]")) {
      if (!shape.bounds.empty()) return fail("only the first dimension can be open");
      shape.unsized = true;
    } else {
      Value value;
      if (!constant(value)) return false;
      if (value.is_float || value.bits > kElementsMax) return fail("array is too large");
      bound = value.bits;
    }
    if (!expect("]")) return false;
    shape.array = true;
    shape.bounds.push_back(bound);
    if (shape.unsized && shape.bounds.size() == 1) continue;
    if (bound != 0 && shape.element_count > kElementsMax / bound) {
      return fail("array is too large");
    }
    shape.element_count *= bound;
  }
  return true;
}

bool Parser::variable(Space space, Linkage linkage, bool in_function) {
  Variable made;
  made.space = space;
  made.linkage = linkage;
  made.line = token_.line;
  if (accept_word("attribute") && !attribute(made.managed)) return false;
  Shape common;
  if (!shape_words(common)) return false;
  do {
    if (!one_variable(made, in_function, common)) return false;
  } while (accept(","));
  return expect(";");
}

bool Parser::one_variable(Variable made, bool in_function, const Shape& common) {
  Shape shape = common;
  std::optional<std::uint32_t> range;
  if (!expect_identifier(shape.name) || !range_of_names(range) || !array_bounds(shape)) {
    return false;
  }
  if (shape.type.bytes == 0) return fail("a variable cannot be a predicate");
  made.name = std::string(shape.name);
  made.opaque = shape.opaque;
  if (made.opaque != Opaque::kNone) {
    if (made.space != Space::kGlobal || in_function || shape.array || token_.is("=")) {
      return fail("Feature 'references of this kind' is not supported");
    }
  }
  made.align = shape.align == 0 ? shape.type.bytes : shape.align;
  if (shape.element_count > kVariableBytesMax / shape.type.bytes) {
    return fail("variable is too large");
  }
  if (shape.array) made.element_bytes = shape.type.bytes;
  if (!shape.unsized) made.size = shape.element_count * shape.type.bytes;
  if (accept("=")) {
    if (range.has_value()) return fail("names of a range cannot be initialised");
    if (made.space == Space::kShared || made.space == Space::kLocal) {
      return fail("variables of this space cannot be initialised");
    }
    // Its address may stand in its own initial value.
    if (!in_function && !variable_names_.contains(made.name)) {
      Variable declared = made;
      declared.linkage = Linkage::kExtern;
      if (!add_variable(std::move(declared), false, shape.name)) return false;
    }
    if (!initializer(made, shape)) return false;
    if (shape.unsized) made.size = made.initial.size();
    if (made.initial.size() > made.size) return fail("too many initial values");
  }
  const bool open = made.space == Space::kShared || made.linkage == Linkage::kExtern;
  if (shape.unsized && made.size == 0 && !open) return fail("variable without a size");
  if (made.space == Space::kShared && made.size > kSharedBytesMax) {
    return fail("shared variable is too large");
  }
  // A .shared array of unknown size is dynamic shared memory, whatever its linkage says.
  if (made.space == Space::kShared && shape.unsized) made.linkage = Linkage::kExtern;
  if (range.has_value()) return add_variables(made, in_function, shape.name, *range);
  return add_variable(std::move(made), in_function, shape.name);
}

bool Parser::add_variables(const Variable& made, bool in_function, std::string_view spelled,
                           std::uint32_t count) {
  const auto first = static_cast<std::uint32_t>(builder_.variables().size());
  for (std::uint32_t i = 0; i < count; ++i) {
    Variable each = made;
    each.name += std::to_string(i);
    if (!add_variable(std::move(each), in_function, {})) return false;
  }
  if (in_function) declare_range(spelled, {Entity::Kind::kVariable, first, count});
  return true;
}

bool Parser::add_variable(Variable made, bool in_function, std::string_view spelled) {
  auto& variables = builder_.variables();
  if (variables.size() >= kVariablesMax) return fail("too many variables");
  const auto next = static_cast<std::uint32_t>(variables.size());
  if (in_function) {
    made.name = current().name + "::" + made.name;
    variables.push_back(std::move(made));
    return spelled.empty() || declare(spelled, {Entity::Kind::kVariable, next, 0});
  }
  const auto [found, added] = variable_names_.try_emplace(made.name, next);
  if (added) {
    variables.push_back(std::move(made));
    return true;
  }
  Variable& before = variables[found->second];
  if (before.space != made.space) {
    return fail("'" + made.name + "' was declared in another space");
  }
  if (made.linkage == Linkage::kExtern) return true;
  if (before.linkage != Linkage::kExtern && before.linkage != Linkage::kWeak &&
      before.linkage != Linkage::kCommon) {
    return fail("Duplicate definition of variable '" + made.name + "'");
  }
  before = std::move(made);
  return true;
}

bool Parser::initializer(Variable& variable, Shape& shape) {
  std::uint64_t at = 0;
  if (token_.is("{")) return initializer_list(variable, shape, at, 0);
  return initial_value(variable, shape, at);
}

bool Parser::initializer_list(Variable& variable, const Shape& shape, std::uint64_t& at,
                              unsigned depth) {
  if (depth >= kNestingMax) return fail("initial values are nested too deeply");
  if (!expect("{")) return false;
  std::uint64_t inner = shape.type.bytes;  // Of one element of this list, if it is a list.
  for (std::size_t i = depth + 1; i < shape.bounds.size(); ++i) inner *= shape.bounds[i];
  while (!token_.is("}")) {
    const std::uint64_t begin = at;
    if (token_.is("{")) {
      if (!initializer_list(variable, shape, at, depth + 1)) return false;
      at = std::max(at, depth + 1 < shape.bounds.size() ? begin + inner : at);
    } else {
      if (!initial_value(variable, shape, at)) return false;
      at += shape.type.bytes;
    }
    if (!accept(",")) break;
  }
  return expect("}");
}

bool Parser::reserve_initial(Variable& variable, std::uint64_t bytes) {
  if (!variable.initial.empty() && bytes <= variable.initial.size()) return true;
  const std::uint64_t more = bytes - variable.initial.size();
  if (bytes > kInitialBytesMax || initial_bytes_ + more > kInitialBytesMax) {
    return fail("initial values are larger than the limit");
  }
  initial_bytes_ += more;
  variable.initial.resize(bytes);
  return true;
}

bool Parser::initial_value(Variable& variable, const Shape& shape, std::uint64_t at) {
  if (!reserve_initial(variable, at + shape.type.bytes)) return false;
  if (is_name(token_)) {
    Relocation made;
    made.offset = at;
    made.size = shape.type.bytes;
    if (made.size < 4) return fail("an address does not fit");
    if (!symbol_address(made)) return false;
    variable.relocations.push_back(made);
    return true;
  }
  Value value;
  if (!constant(value)) return false;
  if (token_.is("(") && !value.is_float) return masked_symbol(variable, shape, at, value.bits);
  return store_constant(variable, shape, at, value);
}

// 0xFF00(symbol): one byte of an address.
bool Parser::masked_symbol(Variable& variable, const Shape& shape, std::uint64_t at,
                           std::uint64_t mask) {
  Relocation made;
  made.offset = at;
  made.size = 1;
  if (mask == 0 || shape.type.bytes != 1) return fail("malformed mask of an address");
  made.shift = static_cast<std::uint32_t>(std::countr_zero(mask));
  if (made.shift % 8 != 0 || mask >> made.shift != 0xff) {
    return fail("malformed mask of an address");
  }
  advance();
  if (!symbol_address(made) || !expect(")")) return false;
  variable.relocations.push_back(made);
  return true;
}

// name, name+4, generic(name), generic(name)+4, name[4]
bool Parser::symbol_address(Relocation& relocation) {
  std::string_view name;
  if (!expect_identifier(name)) return false;
  relocation.generic = name == "generic" && accept("(");
  if (relocation.generic && !expect_identifier(name)) return false;
  const std::string key(name);
  if (const auto variable = variable_names_.find(key); variable != variable_names_.end()) {
    relocation.target = Relocation::Target::kVariable;
    relocation.index = variable->second;
  } else if (const auto found = function_names_.find(key); found != function_names_.end()) {
    relocation.target = Relocation::Target::kFunction;
    relocation.index = found->second;
  } else {
    return fail("Unknown symbol '" + key + "'");
  }
  if (relocation.generic && !expect(")")) return false;
  return constant_offset(relocation.addend);
}

bool Parser::store_constant(Variable& variable, const Shape& shape, std::uint64_t at, Value value) {
  std::uint64_t bits = value.bits;
  const bool floating = shape.type.kind == Register::Kind::kFloat;
  if (value.is_float && shape.type.bytes == 4) {
    if (!value.is_single) {
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    }
  } else if (value.is_float && shape.type.bytes == 8) {
    if (value.is_single) {
      const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      bits = std::bit_cast<std::uint64_t>(static_cast<double>(single));
    }
  } else if (value.is_float) {
    return fail("a floating-point value cannot initialise this type");
  } else if (floating && shape.type.bytes == 4) {
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int64_t>(bits)));
  } else if (floating && shape.type.bytes == 8) {
    bits = std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<std::int64_t>(bits)));
  }
  const std::size_t bytes = std::min<std::size_t>(shape.type.bytes, 8);
  std::memcpy(variable.initial.data() + at, &bits, bytes);
  return true;
}

}  // namespace flyt::ptx
