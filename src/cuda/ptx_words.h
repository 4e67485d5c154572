// PtxWords: the words and marks of PTX; comments and strings are passed over.
#pragma once

#include <string_view>

namespace flyt::cuda {

// None of the text is trusted.
class PtxWords {
 public:
  explicit PtxWords(std::string_view text) : text_(text) {}

  // A run of letters, digits and dots, or one other character; empty at the end.
  std::string_view next() {
    skip();
    std::size_t length = text_.empty() ? 0 : 1;
    if (length != 0 && in_word(text_[0])) {
      while (length < text_.size() && in_word(text_[length])) ++length;
    }
    return take(length);
  }

  static bool in_word(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '_' || letter == '$' || letter == '%' ||
           letter == '.';
  }

 private:
  std::string_view take(std::size_t length) {
    const std::string_view taken = text_.substr(0, length);
    text_.remove_prefix(length);
    return taken;
  }
  void skip_past(std::string_view end, std::size_t from) {
    const std::size_t at = text_.find(end, from);
    text_.remove_prefix(at == text_.npos ? text_.size() : at + end.size());
  }
  void skip() {
    while (!text_.empty()) {
      if (text_.starts_with("//")) {
        skip_past("\n", 2);
      } else if (text_.starts_with("/*")) {
        skip_past("*/", 2);
      } else if (text_.starts_with("\"")) {
        skip_past("\"", 1);
      } else if (static_cast<unsigned char>(text_[0]) <= ' ') {
        text_.remove_prefix(1);
      } else {
        return;
      }
    }
  }

  std::string_view text_;
};

}  // namespace flyt::cuda
