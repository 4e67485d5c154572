#include "cuda/code_facts.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "cuda/code_variables.h"
#include "cuda/fatbin.h"
#include "cuda/ptx_words.h"

namespace flyt::cuda {
namespace {

std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  return b > kCodeBytesUnknown - a ? kCodeBytesUnknown : a + b;
}
std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kCodeBytesUnknown : product;
}

// What has no contents in the file: variables that begin as zeros, and shared memory.
std::uint64_t elf_bytes(Bytes elf) {
  constexpr std::uint32_t kNoContents = 8;
  const auto sections = elf_sections(elf);
  if (!sections) return kCodeBytesUnknown;
  std::uint64_t total = elf.size();
  for (const ElfSection& section : *sections) {
    if (section.type == kNoContents) total = plus(total, section.size);
  }
  return total;
}

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
  void dimension(PtxWords& words) {
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
  PtxWords words(text);
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
  return is_elf(file) ? elf_bytes(file) : plus(file.size(), variables_bytes(text_of(file)));
}

bool contains(Bytes where, std::string_view what) {
  return ::memmem(where.data(), where.size(), what.data(), what.size()) != nullptr;
}

constexpr std::string_view kPrints = "vprintf";  // The function that code names which prints.

// Names stand in a few sections of a cubin, whose rest may be many megabytes.
void look_into_elf(CodeFacts& facts, Bytes elf) {
  using namespace std::string_view_literals;
  constexpr std::uint32_t kNames = 3;
  const auto sections = elf_sections(elf);
  if (!sections) {
    facts.may_print = facts.may_remember = true;
    return;
  }
  for (const ElfSection& section : *sections) {
    if (section.type != kNames) continue;
    if (section.offset > elf.size() || elf.size() - section.offset < section.size) {
      facts.may_print = facts.may_remember = true;
      return;
    }
    const Bytes names = elf.subspan(section.offset, section.size);
    facts.may_print = facts.may_print || contains(names, kPrints);
    facts.may_remember = facts.may_remember || contains(names, "\0malloc\0"sv);
  }
}

void look_into_text(CodeFacts& facts, Bytes file) {
  facts.may_print = facts.may_print || contains(file, kPrints);
  if (!contains(file, "malloc")) return;
  PtxWords words(text_of(file));
  for (auto word = words.next(); !word.empty(); word = words.next()) {
    if (word == "malloc") facts.may_remember = true;
  }
}

void add_file(CodeFacts& facts, Bytes file) {
  facts.loaded_bytes = std::max(facts.loaded_bytes, file_bytes(file));
  is_elf(file) ? look_into_elf(facts, file) : look_into_text(facts, file);
  facts.has_variables = facts.has_variables || variables_of_file(file).any();
}

}  // namespace

CodeFacts code_facts(Bytes image) {
  CodeFacts facts{
      .loaded_bytes = 0, .may_print = false, .may_remember = false, .has_variables = false};
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

bool has_packed_code(Bytes image) {
  const auto fatbin = Fatbin::parse(image);
  if (!fatbin) return false;
  const auto packed = [](const FatbinFile& file) { return file.packing != Packing::kNone; };
  return std::any_of(fatbin->files().begin(), fatbin->files().end(), packed);
}

}  // namespace flyt::cuda
