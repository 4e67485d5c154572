#include "cuda/code_facts.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "cuda/fatbin.h"

namespace flyt::cuda {
namespace {

constexpr std::uint32_t kElfMagic = 0x464C457F;
constexpr std::size_t kElfHeaderBytes = 64;
constexpr std::size_t kSectionsAt = 40;
constexpr std::size_t kSectionCountAt = 60;
constexpr std::size_t kSectionBytes = 64;
constexpr std::size_t kSectionOffsetAt = 24;
constexpr std::size_t kSectionSizeAt = 32;
constexpr std::uint32_t kSectionNoBits = 8;

std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  return b > kCodeBytesUnknown - a ? kCodeBytesUnknown : a + b;
}
std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kCodeBytesUnknown : product;
}

template <class T>
T load(Bytes bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// What has no contents in the file: variables that begin as zeros, and shared memory.
std::uint64_t elf_bytes(Bytes elf) {
  std::uint64_t total = elf.size();
  if (elf.size() < kElfHeaderBytes) return total;
  const auto first = load<std::uint64_t>(elf, kSectionsAt);
  const auto count = load<std::uint16_t>(elf, kSectionCountAt);
  if (first > elf.size() || (elf.size() - first) / kSectionBytes < count) return kCodeBytesUnknown;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = static_cast<std::size_t>(first) + i * kSectionBytes;
    if (load<std::uint32_t>(elf, at + 4) != kSectionNoBits) continue;
    total = plus(total, load<std::uint64_t>(elf, at + kSectionSizeAt));
  }
  return total;
}

bool in_word(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '_' || letter == '$' || letter == '%' ||
         letter == '.';
}

// The words and marks of PTX; comments and strings are passed over.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  // A run of letters, digits and dots, or one other character; empty at the end.
  std::string_view next() {
    skip();
    std::size_t length = text_.empty() ? 0 : 1;
    if (length != 0 && in_word(text_[0])) {
      while (length < text_.size() && in_word(text_[length])) ++length;
    }
    return take(length);
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

// Plain numbers as compilers write them; expressions are none.
std::optional<std::uint64_t> number(std::string_view word) {
  int base = 10;
  if (word.ends_with('U')) word.remove_suffix(1);
  if (word.starts_with("0x") || word.starts_with("0X")) {
    base = 16;
    word.remove_prefix(2);
  } else if (word.size() > 1 && word.starts_with('0')) {
    base = 8;
  }
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) return std::nullopt;
  return value;
}

// One declaration of variables, word by word.
class Declaration {
 public:
  // The directives of one word: .visible.global.v4
  void directives(std::string_view word) {
    while (word.size() > 1) {
      const std::size_t end = word.find('.', 1);
      directive(word.substr(1, end == word.npos ? end : end - 1));
      word = end == word.npos ? std::string_view() : word.substr(end);
    }
  }
  bool of_memory() const { return of_memory_; }

  // What stands between brackets: the elements of one dimension.
  void dimension(Words& words) {
    const std::string_view inside = words.next();
    if (inside == "]") return;  // As many as there are values, which stand in the text.
    const auto elements = number(inside);
    const bool plain = elements && words.next() == "]";
    elements_ = plain ? times(elements_, *elements) : kCodeBytesUnknown;
  }
  // At a comma or the end.
  void finish_one() {
    bytes_ = plus(bytes_, times(times(element_bytes_, vector_), elements_));
    elements_ = 1;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  void directive(std::string_view name) {
    if (name == "global" || name == "const") of_memory_ = true;
    if (name == "v2" || name == "v4" || name == "v8")
      vector_ = static_cast<unsigned>(name[1] - '0');
    if (name.ends_with("ref")) element_bytes_ = sizeof(std::uint64_t);
    const std::size_t digits = name.find_first_of("0123456789");
    if (digits == name.npos) return;
    const std::string_view kind = name.substr(0, digits);
    if (kind != "b" && kind != "u" && kind != "s" && kind != "f" && kind != "bf") return;
    unsigned bits = 0;
    std::from_chars(name.data() + digits, name.data() + name.size(), bits);
    element_bytes_ = std::max(1U, bits / 8) * (name.ends_with("x2") ? 2U : 1U);
  }

  bool of_memory_ = false;
  unsigned element_bytes_ = 16;  // Until a type is seen: the largest.
  unsigned vector_ = 1;
  std::uint64_t elements_ = 1;
  std::uint64_t bytes_ = 0;
};

std::uint64_t variables_bytes(std::string_view text) {
  Words words(text);
  std::uint64_t total = 0;
  Declaration declaration;
  for (auto word = words.next(); !word.empty(); word = words.next()) {
    if (word[0] == '.') {
      declaration.directives(word);
    } else if (word == "[" && declaration.of_memory()) {
      declaration.dimension(words);
    } else if (word == "," && declaration.of_memory()) {
      declaration.finish_one();
    } else if (word == ";" || word == "=" || word == "{" || word == "}") {
      if (declaration.of_memory()) declaration.finish_one();
      total = plus(total, declaration.bytes());
      declaration = {};
    }
  }
  return total;
}

std::uint64_t file_bytes(Bytes file) {
  const bool elf = file.size() >= sizeof kElfMagic && load<std::uint32_t>(file, 0) == kElfMagic;
  return elf ? elf_bytes(file) : plus(file.size(), variables_bytes(text_of(file)));
}

// The name that stands at an offset of a section of names.
std::string_view name_at(Bytes elf, std::uint64_t names, std::uint32_t offset) {
  if (names > elf.size() || offset >= elf.size() - names) return {};
  const std::string_view rest = text_of(elf).substr(names + offset);
  return rest.substr(0, rest.find('\0'));
}

bool elf_may_remember(Bytes elf) {
  using namespace std::string_view_literals;
  if (elf.size() < kElfHeaderBytes || text_of(elf).find("\0malloc\0"sv) != std::string_view::npos) {
    return true;
  }
  const auto first = load<std::uint64_t>(elf, kSectionsAt);
  const auto count = load<std::uint16_t>(elf, kSectionCountAt);
  const auto naming = load<std::uint16_t>(elf, kSectionCountAt + 2);
  if (first > elf.size() || (elf.size() - first) / kSectionBytes < count || naming >= count) {
    return true;
  }
  const auto section = [&](std::size_t i) {
    return static_cast<std::size_t>(first) + i * kSectionBytes;
  };
  const auto names = load<std::uint64_t>(elf, section(naming) + kSectionOffsetAt);
  for (std::size_t i = 0; i < count; ++i) {
    const auto name = name_at(elf, names, load<std::uint32_t>(elf, section(i)));
    const bool some = load<std::uint64_t>(elf, section(i) + kSectionSizeAt) != 0;
    if (some && name.starts_with(".nv.global")) return true;
  }
  return false;
}

bool text_may_remember(std::string_view text) {
  Words words(text);
  for (auto word = words.next(); !word.empty(); word = words.next()) {
    if (word == "malloc") return true;
    if (word[0] != '.') continue;
    // The directives of one word: .visible.global.v4
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t end = std::min(word.find('.', at + 1), word.size());
      if (word.substr(at, end - at) == ".global") return true;
      at = end;
    }
  }
  return false;
}

bool file_may_remember(Bytes file) {
  const bool elf = file.size() >= sizeof kElfMagic && load<std::uint32_t>(file, 0) == kElfMagic;
  return elf ? elf_may_remember(file) : text_may_remember(text_of(file));
}

// Code that prints names the function that does it.
bool names_printing(Bytes code) {
  constexpr std::string_view kName = "vprintf";
  return ::memmem(code.data(), code.size(), kName.data(), kName.size()) != nullptr;
}

void add_file(CodeFacts& facts, Bytes file) {
  facts.loaded_bytes = std::max(facts.loaded_bytes, file_bytes(file));
  facts.may_print = facts.may_print || names_printing(file);
  facts.may_remember = facts.may_remember || file_may_remember(file);
}

}  // namespace

CodeFacts code_facts(Bytes image) {
  CodeFacts facts{.loaded_bytes = 0, .may_print = false, .may_remember = false};
  const auto fatbin = Fatbin::parse(image);
  if (!fatbin) {
    add_file(facts, image);
    return facts;
  }
  for (const FatbinFile& file : fatbin->files()) {
    if (file.packing == Packing::kNone) {
      add_file(facts, file.stored);
    } else if (const auto unpacked = unpack(file)) {
      add_file(facts, *unpacked);
    } else {
      facts.may_print = facts.may_remember = true;
    }
  }
  return facts;
}

}  // namespace flyt::cuda
