#include "softgpu/ptx/parser.h"

#include <algorithm>
#include <bit>

namespace flyt::ptx {

bool Parser::fail(std::string message) { return fail_at(token_.line, std::move(message)); }

bool Parser::fail_at(std::uint32_t line, std::string message) {
  if (failed_) return false;
  failed_ = true;
  if (token_.kind == Token::Kind::kBad) message = std::string(token_.text);
  if (log_ != nullptr) log_->error(line, message);
  error_ = "PTX line " + std::to_string(line) + ": " + message;
  return false;
}

bool Parser::accept(std::string_view punctuation) {
  if (!token_.is(punctuation)) return false;
  advance();
  return true;
}

bool Parser::expect(std::string_view punctuation) {
  if (accept(punctuation)) return true;
  return fail("Parsing error near '" + std::string(token_.text) + "': expected '" +
              std::string(punctuation) + "'");
}

bool Parser::accept_word(std::string_view word) {
  if (!token_.is_word(word)) return false;
  advance();
  return true;
}

bool Parser::expect_identifier(std::string_view& name) {
  if (token_.kind != Token::Kind::kIdentifier) {
    return fail("Parsing error near '" + std::string(token_.text) + "': expected a name");
  }
  name = token_.text;
  advance();
  return true;
}

bool Parser::expect_count(std::uint32_t& value, std::uint64_t max) {
  Value number;
  if (!constant_unary(number, 0)) return false;
  if (number.is_float || number.bits > max) return fail("number out of range");
  value = static_cast<std::uint32_t>(number.bits);
  return true;
}

Result<std::shared_ptr<const Module>> Parser::run() {
  advance();
  if (!module()) return Error{ErrorCode::kInvalid, error_};
  return builder_.finish();
}

bool Parser::module() {
  if (!version() || !target()) return false;
  while (token_.kind != Token::Kind::kEnd) {
    if (!module_directive()) return false;
  }
  return true;
}

bool Parser::version() {
  if (!accept_word("version")) return fail("Missing .version directive at start of file");
  if (token_.kind != Token::Kind::kFloat64) return fail("malformed .version");
  const double version = std::bit_cast<double>(token_.bits);
  if (version < 1 || version >= 100) return fail("unsupported .version");
  const auto scaled = static_cast<std::uint32_t>(version * 10 + 0.5);
  builder_.set_version(scaled / 10, scaled % 10);
  advance();
  return true;
}

bool Parser::target() {
  if (!accept_word("target")) return fail("Missing .target directive");
  do {
    std::string_view name;
    if (!expect_identifier(name)) return false;
    if (!name.starts_with("sm_") && !name.starts_with("compute_")) continue;
    name.remove_prefix(name.find('_') + 1);
    std::uint32_t number = 0;
    while (!name.empty() && name[0] >= '0' && name[0] <= '9' && number < 1000) {
      number = number * 10 + static_cast<std::uint32_t>(name[0] - '0');
      name.remove_prefix(1);
    }
    if (number < 10 || number > 999 || name.size() > 1) return fail("unsupported .target");
    builder_.set_target(number, name);
  } while (accept(","));
  if (!accept_word("address_size")) return true;
  std::uint32_t bits = 0;
  if (!expect_count(bits, 64)) return false;
  if (bits != 64) return fail("only .address_size 64 is supported");
  return true;
}

bool Parser::linkage(Linkage& linkage) {
  for (;;) {
    if (accept_word("visible")) {
      linkage = Linkage::kVisible;
    } else if (accept_word("extern")) {
      linkage = Linkage::kExtern;
    } else if (accept_word("weak")) {
      linkage = Linkage::kWeak;
    } else if (accept_word("common")) {
      linkage = Linkage::kCommon;
    } else {
      return true;
    }
  }
}

// .attribute(.managed, .unified(1, 2))
bool Parser::attribute(bool& managed) {
  if (!expect("(")) return false;
  unsigned depth = 1;
  while (depth != 0) {
    if (token_.kind == Token::Kind::kEnd || token_.kind == Token::Kind::kBad) {
      return fail("malformed .attribute");
    }
    if (token_.is_word("managed")) managed = true;
    if (token_.is("(")) ++depth;
    if (token_.is(")")) --depth;
    advance();
  }
  return true;
}

bool Parser::skip_braces() {
  while (!token_.is("{")) {
    if (token_.kind == Token::Kind::kEnd || token_.kind == Token::Kind::kBad) {
      return fail("expected '{'");
    }
    advance();
  }
  unsigned depth = 0;
  do {
    if (token_.kind == Token::Kind::kEnd || token_.kind == Token::Kind::kBad) {
      return fail("'{' without '}'");
    }
    if (token_.is("{")) ++depth;
    if (token_.is("}")) --depth;
    advance();
  } while (depth != 0);
  return true;
}

bool Parser::alias() {
  std::string_view name;
  std::string_view target;
  if (!expect_identifier(name) || !expect(",") || !expect_identifier(target)) return false;
  const auto found = function_names_.find(std::string(target));
  const auto declared = function_names_.find(std::string(name));
  if (found == function_names_.end() || declared == function_names_.end()) {
    return fail("alias of an undeclared function");
  }
  if (!builder_.functions()[found->second].defined || found->second == declared->second) {
    return fail("alias of an undefined function");
  }
  if (instruction_count_ + builder_.functions()[found->second].code.instructions.size() >
      kInstructionsMax) {
    return fail("too many instructions");
  }
  instruction_count_ += builder_.functions()[found->second].code.instructions.size();
  register_count_ += builder_.functions()[found->second].code.registers.size();
  if (register_count_ > kAllRegistersMax) return fail("too many registers");
  Function copy = builder_.functions()[found->second];
  copy.name = std::string(name);
  builder_.functions()[declared->second] = std::move(copy);
  return expect(";");
}

bool Parser::module_directive() {
  if (accept(";")) return true;
  if (token_.is_word("file") || token_.is_word("loc")) {
    lexer_.skip_line();
    advance();
    return true;
  }
  if (accept_word("section")) return skip_braces();
  if (accept_word("pragma")) {
    while (token_.kind == Token::Kind::kString || token_.is(",")) advance();
    return expect(";");
  }
  if (accept_word("alias")) return alias();
  Linkage how = Linkage::kInternal;
  if (!linkage(how)) return false;
  if (accept_word("entry")) return function(true, how);
  if (accept_word("func")) return function(false, how);
  if (accept_word("global")) return variable(Space::kGlobal, how, false);
  if (accept_word("const")) return variable(Space::kConst, how, false);
  if (accept_word("shared")) return variable(Space::kShared, how, false);
  if (accept_word("local")) return variable(Space::kLocal, how, false);
  return fail("Parsing error near '" + std::string(token_.text) + "': expected a directive");
}

std::shared_ptr<const Module> ModuleBuilder::finish() {
  Module& module = *module_;
  const auto by_name = [](const auto& entries, std::vector<std::uint32_t>& order) {
    order.resize(entries.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return entries[a].name < entries[b].name;
    });
  };
  by_name(module.functions_, module.functions_by_name_);
  by_name(module.variables_, module.variables_by_name_);
  module.kernels_.clear();
  for (std::uint32_t i = 0; i < module.functions_.size(); ++i) {
    const Function& function = module.functions_[i];
    if (function.kernel && function.defined) module.kernels_.push_back(i);
    module.register_count_ += function.code.registers.size();
  }
  return std::move(module_);
}

namespace {

template <class Entries>
std::optional<std::uint32_t> find_by_name(const Entries& entries,
                                          const std::vector<std::uint32_t>& order,
                                          std::string_view name) {
  const auto found = std::lower_bound(
      order.begin(), order.end(), name,
      [&](std::uint32_t index, std::string_view wanted) { return entries[index].name < wanted; });
  if (found == order.end() || entries[*found].name != name) return std::nullopt;
  return *found;
}

}  // namespace

std::optional<std::uint32_t> Module::find_function(std::string_view name) const {
  return find_by_name(functions_, functions_by_name_, name);
}

std::optional<std::uint32_t> Module::find_variable(std::string_view name) const {
  return find_by_name(variables_, variables_by_name_, name);
}

Result<std::shared_ptr<const Module>> parse(std::string_view text, JitLog* log) {
  while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
  if (text.size() > kSourceBytesMax) {
    return Error{ErrorCode::kLimit, "PTX text is larger than the limit"};
  }
  return Parser(text, log).run();
}

}  // namespace flyt::ptx
