// Constant expressions: integers of 64 bits with C's operators; of doubles sums, products,
// quotients and comparisons, which are integers; 0f... stands alone.
#include <bit>
#include <optional>

#include "softgpu/ptx/parser.h"

namespace flyt::ptx {
namespace {

enum class Operation : std::uint8_t {
  kEither,
  kBoth,
  kOr,
  kXor,
  kAnd,
  kEqual,
  kUnequal,
  kLess,
  kGreater,
  kLessOrEqual,
  kGreaterOrEqual,
  kShiftLeft,
  kShiftRight,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kRemainder,
};

struct Operator {
  std::string_view text;
  Operation operation;
  unsigned level;  // Those of a higher one bind closer.
};

constexpr Operator kOperators[] = {
    {"||", Operation::kEither, 0},
    {"&&", Operation::kBoth, 1},
    {"|", Operation::kOr, 2},
    {"^", Operation::kXor, 3},
    {"&", Operation::kAnd, 4},
    {"==", Operation::kEqual, 5},
    {"!=", Operation::kUnequal, 5},
    {"<", Operation::kLess, 6},
    {">", Operation::kGreater, 6},
    {"<=", Operation::kLessOrEqual, 6},
    {">=", Operation::kGreaterOrEqual, 6},
    {"<<", Operation::kShiftLeft, 7},
    {">>", Operation::kShiftRight, 7},
    {"+", Operation::kAdd, 8},
    {"-", Operation::kSubtract, 8},
    {"*", Operation::kMultiply, 9},
    {"/", Operation::kDivide, 9},
    {"%", Operation::kRemainder, 9},
};

const Operator* find_operator(const Token& token) {
  for (const Operator& each : kOperators) {
    if (token.is(each.text)) return &each;
  }
  return nullptr;
}

struct Integer {
  std::uint64_t bits = 0;
  bool is_unsigned = false;
};

Integer truth(bool value) { return {value ? 1u : 0u, false}; }

Integer shift(Integer left, std::uint64_t count, bool to_left) {
  count &= 63;  // As ptxas does.
  if (to_left) return {left.bits << count, left.is_unsigned};
  if (left.is_unsigned) return {left.bits >> count, true};
  return {static_cast<std::uint64_t>(static_cast<std::int64_t>(left.bits) >> count), false};
}

Integer divide(Integer left, Integer right, bool is_unsigned) {
  if (is_unsigned) return {left.bits / right.bits, true};
  const auto divisor = static_cast<std::int64_t>(right.bits);
  if (divisor == -1) return {0 - left.bits, false};
  return {static_cast<std::uint64_t>(static_cast<std::int64_t>(left.bits) / divisor), false};
}

// Nothing where something is divided by zero.
std::optional<Integer> apply(Operation operation, Integer left, Integer right) {
  const bool is_unsigned = left.is_unsigned || right.is_unsigned;
  const bool less =
      is_unsigned ? left.bits < right.bits
                  : static_cast<std::int64_t>(left.bits) < static_cast<std::int64_t>(right.bits);
  const bool equal = left.bits == right.bits;
  switch (operation) {
    case Operation::kEither:
      return truth(left.bits != 0 || right.bits != 0);
    case Operation::kBoth:
      return truth(left.bits != 0 && right.bits != 0);
    case Operation::kOr:
      return Integer{left.bits | right.bits, is_unsigned};
    case Operation::kXor:
      return Integer{left.bits ^ right.bits, is_unsigned};
    case Operation::kAnd:
      return Integer{left.bits & right.bits, is_unsigned};
    case Operation::kEqual:
      return truth(equal);
    case Operation::kUnequal:
      return truth(!equal);
    case Operation::kLess:
      return truth(less);
    case Operation::kGreater:
      return truth(!less && !equal);
    case Operation::kLessOrEqual:
      return truth(less || equal);
    case Operation::kGreaterOrEqual:
      return truth(!less);
    case Operation::kShiftLeft:
      return shift(left, right.bits, true);
    case Operation::kShiftRight:
      return shift(left, right.bits, false);
    case Operation::kAdd:
      return Integer{left.bits + right.bits, is_unsigned};
    case Operation::kSubtract:
      return Integer{left.bits - right.bits, is_unsigned};
    case Operation::kMultiply:
      return Integer{left.bits * right.bits, is_unsigned};
    case Operation::kDivide:
      if (right.bits == 0) return std::nullopt;
      return divide(left, right, is_unsigned);
    case Operation::kRemainder:  // Of unsigned numbers, whatever they are.
      if (right.bits == 0) return std::nullopt;
      return Integer{left.bits % right.bits, true};
  }
  return std::nullopt;
}

// Nothing where doubles have no such operator, or something is divided by zero.
std::optional<double> calculate(Operation operation, double left, double right) {
  if (operation == Operation::kAdd) return left + right;
  if (operation == Operation::kSubtract) return left - right;
  if (operation == Operation::kMultiply) return left * right;
  if (operation == Operation::kDivide && right != 0) return left / right;
  return std::nullopt;
}

std::optional<bool> compare(Operation operation, double left, double right) {
  if (operation == Operation::kEqual) return left == right;
  if (operation == Operation::kUnequal) return left != right;
  if (operation == Operation::kLess) return left < right;
  if (operation == Operation::kGreater) return left > right;
  if (operation == Operation::kLessOrEqual) return left <= right;
  if (operation == Operation::kGreaterOrEqual) return left >= right;
  return std::nullopt;
}

}  // namespace

// a ? b : c has the type of what is chosen.
bool Parser::constant(Value& value, unsigned depth) {
  if (!constant_binary(value, 0, depth)) return false;
  if (!token_.is("?")) return true;
  if (value.is_float) return fail("Integer constant expression expected");
  if (depth >= kNestingMax) return fail("expression is nested too deeply");
  advance();
  Value yes;
  Value no;
  if (!constant(yes, depth + 1) || !expect(":") || !constant(no, depth + 1)) return false;
  if (yes.is_float || no.is_float) return fail("Integer constant expression expected");
  value = value.bits != 0 ? yes : no;
  return true;
}

// Of an address: whatever follows the sign is one expression.
bool Parser::constant_offset(std::int64_t& bytes) {
  if (!token_.is("+") && !token_.is("-")) return true;
  Value value;
  if (!constant(value)) return false;
  if (value.is_float) return fail("an offset is an integer");
  bytes = static_cast<std::int64_t>(value.bits);
  return true;
}

// Operators of `level` or higher ones.
bool Parser::constant_binary(Value& value, unsigned level, unsigned depth) {
  if (!constant_unary(value, depth)) return false;
  for (const Operator* op = find_operator(token_); op != nullptr && op->level >= level;
       op = find_operator(token_)) {
    advance();
    Value right;
    if (!constant_binary(right, op->level + 1, depth)) return false;
    if (value.is_float || right.is_float) {
      if (!combine_floats(static_cast<std::size_t>(op - kOperators), value, right)) return false;
      continue;
    }
    const auto result =
        apply(op->operation, {value.bits, value.is_unsigned}, {right.bits, right.is_unsigned});
    if (!result.has_value()) return fail("Constant expression has division by zero");
    value.bits = result->bits;
    value.is_unsigned = result->is_unsigned;
  }
  return true;
}

bool Parser::combine_floats(std::size_t op, Value& left, const Value& right) {
  const Operation operation = kOperators[op].operation;
  if (!left.is_float || !right.is_float) return fail("Constant expression type mismatch");
  if (left.is_single || right.is_single) return fail("a number as 0f... stands in no expression");
  const auto a = std::bit_cast<double>(left.bits);
  const auto b = std::bit_cast<double>(right.bits);
  if (const auto truth = compare(operation, a, b); truth.has_value()) {
    left = Value{};
    left.bits = *truth ? 1 : 0;
    return true;
  }
  if (operation == Operation::kDivide && b == 0) {
    return fail("Constant expression has division by zero");
  }
  const auto result = calculate(operation, a, b);
  if (!result.has_value()) return fail("Integer constant expression expected");
  left.bits = std::bit_cast<std::uint64_t>(*result);
  return true;
}

bool Parser::constant_unary(Value& value, unsigned depth) {
  if (depth >= kNestingMax) return fail("expression is nested too deeply");
  if (token_.is("-") || token_.is("+") || token_.is("~") || token_.is("!")) {
    const char op = token_.text[0];
    advance();
    if (!constant_unary(value, depth + 1)) return false;
    if (op == '-' && value.is_float) value.bits ^= value.is_single ? 1ull << 31 : 1ull << 63;
    if (op == '-' && !value.is_float) value.bits = 0 - value.bits;
    if ((op == '~' || op == '!') && value.is_float) return fail("malformed constant expression");
    if (op == '~') value.bits = ~value.bits;
    if (op == '!') value.bits = value.bits == 0 ? 1 : 0;
    if (op == '~' || op == '!') value.is_unsigned = op == '~';
    return true;
  }
  if (accept("(")) {
    const bool is_unsigned = token_.is_word("u64");
    if (!accept_word("s64") && !accept_word("u64")) {
      return constant(value, depth + 1) && expect(")");
    }
    if (!expect(")") || !constant_unary(value, depth + 1)) return false;
    if (value.is_float) return fail("malformed constant expression");
    value.is_unsigned = is_unsigned;
    return true;
  }
  if (token_.kind == Token::Kind::kIdentifier && !is_name(token_)) {
    value.bits = 32;
  } else if (token_.kind == Token::Kind::kInteger) {
    value.bits = token_.bits;
    value.is_unsigned = token_.is_unsigned;
  } else if (token_.kind == Token::Kind::kFloat32 || token_.kind == Token::Kind::kFloat64) {
    value.is_float = true;
    value.is_single = token_.kind == Token::Kind::kFloat32;
    value.bits = token_.bits;
  } else {
    return fail("Parsing error near '" + std::string(token_.text) + "': expected a number");
  }
  advance();
  return true;
}

}  // namespace flyt::ptx
