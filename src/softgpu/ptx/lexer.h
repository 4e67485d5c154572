// Lexer: PTX text as tokens, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace flyt::ptx {

struct Token {
  enum class Kind : std::uint8_t {
    kEnd,
    kIdentifier,   // text: foo, %r1, $L_2, _
    kDotWord,      // text: without the dot: "global", "L1::no_allocate"
    kInteger,      // bits
    kFloat32,      // bits of 0f...
    kFloat64,      // bits of 0d... or of a decimal literal
    kString,       // text: between the quotes
    kPunctuation,  // text: one character, or << >> <= >= == != && ||
    kBad,          // text: what is wrong
  };
  Kind kind = Kind::kEnd;
  std::uint32_t line = 1;
  std::string_view text;
  std::uint64_t bits = 0;
  bool is_unsigned = false;  // An integer: by its suffix, or beyond 63 bits.

  bool is(std::string_view punctuation) const {
    return kind == Kind::kPunctuation && text == punctuation;
  }
  bool is_word(std::string_view word) const { return kind == Kind::kDotWord && text == word; }
};

// Views into the text, which must outlive the lexer and its tokens. Not thread-safe.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next();
  // Drops the rest of the current line (for .loc and .file).
  void skip_line();
  std::uint32_t line() const { return line_; }

 private:
  bool skip_blank();
  bool is_fraction() const;
  bool is_exponent(std::size_t offset) const;
  Token identifier(Token token);
  Token dot_word(Token token);
  Token number(Token token);
  Token hex_float(Token token, std::size_t digits);
  Token decimal_float(Token token);
  Token quoted(Token token);
  Token bad(Token token, std::string_view what);
  char at(std::size_t offset) const {
    return position_ + offset < text_.size() ? text_[position_ + offset] : '\0';
  }

  std::string_view text_;
  std::size_t position_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace flyt::ptx
