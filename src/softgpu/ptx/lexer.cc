#include "softgpu/ptx/lexer.h"

#include <algorithm>
#include <bit>
#include <charconv>

namespace flyt::ptx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word(char c) { return is_digit(c) || is_letter(c) || c == '_' || c == '$'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

// Skips white space and comments; false where a comment does not end.
bool Lexer::skip_blank() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f') {
      ++position_;
    } else if (c == '/' && at(1) == '/') {
      while (position_ < text_.size() && text_[position_] != '\n') ++position_;
    } else if (c == '/' && at(1) == '*') {
      const std::size_t end = text_.find("*/", position_ + 2);
      if (end == std::string_view::npos) return false;
      const std::string_view comment = text_.substr(position_, end - position_);
      line_ += static_cast<std::uint32_t>(std::count(comment.begin(), comment.end(), '\n'));
      position_ = end + 2;
    } else {
      break;
    }
  }
  return true;
}

void Lexer::skip_line() {
  while (position_ < text_.size() && text_[position_] != '\n') ++position_;
}

Token Lexer::next() {
  Token token;
  if (!skip_blank()) return bad(token, "comment without end");
  token.line = line_;
  if (position_ >= text_.size()) return token;
  const char c = text_[position_];
  if (is_letter(c) || c == '_' || c == '$' || (c == '%' && is_word(at(1)))) {
    return identifier(token);
  }
  if (c == '.' && is_fraction()) return decimal_float(token);
  if (c == '.' && is_word(at(1))) return dot_word(token);
  if (is_digit(c)) return number(token);
  if (c == '"') return quoted(token);
  const char after = at(1);
  const bool two = (after == c && (c == '<' || c == '>' || c == '&' || c == '|' || c == '=')) ||
                   (after == '=' && (c == '<' || c == '>' || c == '!'));
  constexpr std::string_view kPunctuation = ",;:{}()[]<>+-!@|=*/%&^~?.";
  if (kPunctuation.find(c) == std::string_view::npos) return bad(token, "unexpected character");
  token.kind = Token::Kind::kPunctuation;
  token.text = text_.substr(position_, two ? 2 : 1);
  position_ += token.text.size();
  return token;
}

// .5 and .5e3, but not .2d: no modifier is a number.
bool Lexer::is_fraction() const {
  std::size_t end = 1;
  while (is_digit(at(end))) ++end;
  if (end == 1) return false;
  return !is_word(at(end)) || is_exponent(end);
}

bool Lexer::is_exponent(std::size_t offset) const {
  if (at(offset) != 'e' && at(offset) != 'E') return false;
  const bool sign = at(offset + 1) == '+' || at(offset + 1) == '-';
  return is_digit(at(offset + (sign ? 2 : 1)));
}

Token Lexer::identifier(Token token) {
  const std::size_t begin = position_++;
  while (is_word(at(0))) ++position_;
  token.kind = Token::Kind::kIdentifier;
  token.text = text_.substr(begin, position_ - begin);
  return token;
}

Token Lexer::dot_word(Token token) {
  const std::size_t begin = ++position_;
  while (is_word(at(0)) || (at(0) == ':' && at(1) == ':' && is_word(at(2)))) {
    position_ += at(0) == ':' ? 2 : 1;
  }
  token.kind = Token::Kind::kDotWord;
  token.text = text_.substr(begin, position_ - begin);
  return token;
}

Token Lexer::number(Token token) {
  if (at(0) == '0' && (at(1) == 'f' || at(1) == 'F')) return hex_float(token, 8);
  if (at(0) == '0' && (at(1) == 'd' || at(1) == 'D')) return hex_float(token, 16);
  unsigned base = 10;
  std::size_t skip = 0;
  if (at(0) == '0' && (at(1) == 'x' || at(1) == 'X')) {
    base = 16;
    skip = 2;
  } else if (at(0) == '0' && (at(1) == 'b' || at(1) == 'B')) {
    base = 2;
    skip = 2;
  } else if (at(0) == '0' && is_digit(at(1))) {
    base = 8;
    skip = 1;
  }
  if (base == 10) {
    std::size_t digits = 0;
    while (is_digit(at(digits))) ++digits;
    const char after = at(digits);
    if (after == 'e' || after == 'E' || (after == '.' && is_digit(at(digits + 1))) ||
        (after == '.' && (!is_word(at(digits + 1)) || is_exponent(digits + 1)))) {
      return decimal_float(token);
    }
  }
  position_ += skip;
  std::size_t digits = 0;
  token.kind = Token::Kind::kInteger;
  for (;; ++position_, ++digits) {
    const int digit = hex_digit(at(0));
    if (digit < 0 || static_cast<unsigned>(digit) >= base) break;
    const std::uint64_t before = token.bits;
    token.bits = token.bits * base + static_cast<unsigned>(digit);
    if (before > ~std::uint64_t{0} / base || token.bits < before * base) {
      return bad(token, "integer too large");
    }
  }
  if (digits == 0) return bad(token, "number without digits");
  token.is_unsigned = at(0) == 'U' || at(0) == 'u';
  if (token.is_unsigned) ++position_;
  token.is_unsigned = token.is_unsigned || token.bits >> 63 != 0;
  if (is_word(at(0))) return bad(token, "malformed number");
  return token;
}

Token Lexer::hex_float(Token token, std::size_t digits) {
  token.kind = digits == 8 ? Token::Kind::kFloat32 : Token::Kind::kFloat64;
  position_ += 2;
  for (std::size_t i = 0; i < digits; ++i) {
    const int digit = hex_digit(at(0));
    if (digit < 0) return bad(token, "malformed floating-point constant");
    token.bits = token.bits << 4 | static_cast<unsigned>(digit);
    ++position_;
  }
  if (is_word(at(0))) return bad(token, "malformed floating-point constant");
  return token;
}

Token Lexer::decimal_float(Token token) {
  double value = 0;
  const char* begin = text_.data() + position_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc{}) return bad(token, "malformed floating-point constant");
  position_ += static_cast<std::size_t>(end - begin);
  token.kind = Token::Kind::kFloat64;
  token.bits = std::bit_cast<std::uint64_t>(value);
  return token;
}

Token Lexer::quoted(Token token) {
  const std::size_t begin = ++position_;
  while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n') {
    position_ += text_[position_] == '\\' && at(1) != '\n' ? 2 : 1;
  }
  if (position_ >= text_.size() || text_[position_] != '"') {
    position_ = std::min(position_, text_.size());
    return bad(token, "string without end");
  }
  token.kind = Token::Kind::kString;
  token.text = text_.substr(begin, position_ - begin);
  ++position_;
  return token;
}

Token Lexer::bad(Token token, std::string_view what) {
  token.kind = Token::Kind::kBad;
  token.text = what;
  position_ = text_.size();
  return token;
}

}  // namespace flyt::ptx
