#include "cuda/code_variables.h"

#include <algorithm>
#include <cstring>

#include "cuda/ptx_words.h"

namespace flyt::cuda {
namespace {

constexpr std::uint32_t kElfMagic = 0x464C457F;
constexpr std::size_t kElfHeaderBytes = 64;
constexpr std::size_t kSectionsAt = 40;
constexpr std::size_t kSectionCountAt = 60;
constexpr std::size_t kSectionNamesAt = 62;
constexpr std::size_t kSectionBytes = 64;
constexpr std::size_t kSymbolBytes = 24;
constexpr std::uint32_t kSectionOfSymbols = 2;
// Kinds of symbols that are no variables.
constexpr std::uint8_t kSymbolFunction = 2;
constexpr std::uint8_t kSymbolSection = 3;
constexpr std::uint8_t kSymbolFile = 4;

template <class T>
T load(Bytes bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The name that stands at an offset of a section of names.
std::string_view name_at(Bytes elf, std::uint64_t names, std::uint32_t offset) {
  if (names > elf.size() || offset >= elf.size() - names) return {};
  const std::string_view rest = text_of(elf).substr(names + offset);
  return rest.substr(0, rest.find('\0'));
}

void add_name(CodeVariables& variables, std::string_view name) {
  if (name.empty() || variables.names.size() >= CodeVariables::kNamesMax) {
    variables.complete = false;
  } else {
    variables.names.emplace_back(name);
  }
}

CodeVariables sorted(CodeVariables variables) {
  auto& names = variables.names;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return variables;
}

// Those of one table of symbols; `named`: by section, whether a variable there has been seen.
void add_symbols(Bytes elf, const std::vector<ElfSection>& sections, const ElfSection& symbols,
                 std::vector<bool>& named, CodeVariables& variables) {
  if (symbols.link >= sections.size() || symbols.offset > elf.size() ||
      elf.size() - symbols.offset < symbols.size) {
    variables.complete = false;
    return;
  }
  const std::uint64_t names = sections[symbols.link].offset;
  Reader reader(elf.subspan(symbols.offset, symbols.size));
  while (reader.remaining() >= kSymbolBytes && variables.complete) {
    const auto name = reader.take<std::uint32_t>();
    const auto kind = static_cast<std::uint8_t>(reader.take<std::uint8_t>() & 0xf);
    reader.take<std::uint8_t>();
    const auto section = reader.take<std::uint16_t>();
    reader.take<std::uint64_t>();
    const auto size = reader.take<std::uint64_t>();
    if (section >= sections.size() || !sections[section].name.starts_with(".nv.global")) continue;
    if (size == 0 || kind == kSymbolFunction || kind == kSymbolSection || kind == kSymbolFile) {
      continue;
    }
    named[section] = true;
    add_name(variables, name_at(elf, names, name));
  }
}

CodeVariables variables_of_elf(Bytes elf) {
  CodeVariables variables;
  const auto sections = elf_sections(elf);
  if (!sections) return {{}, false};
  std::vector<bool> named(sections->size());
  for (const ElfSection& section : *sections) {
    if (section.type == kSectionOfSymbols) add_symbols(elf, *sections, section, named, variables);
  }
  for (std::size_t i = 0; i < sections->size(); ++i) {
    const ElfSection& section = (*sections)[i];
    const bool memory = section.size != 0 && section.name.starts_with(".nv.global");
    if (memory && !named[i]) variables.complete = false;
  }
  return variables;
}

// Statements of PTX, one word after the other: which variables they declare.
class Statements {
 public:
  explicit Statements(std::string_view text) : words_(text) {}

  CodeVariables variables() {
    for (auto word = words_.next(); !word.empty(); word = words_.next()) {
      if (word == ";" || word == "{" || word == "}") {
        of_parameter_ = global_ = false;
      } else if (word[0] == '.') {
        directives(word);
      } else if (global_) {
        declared(word);
      } else if (word == "," || word == "(" || word == ")") {
        of_parameter_ = false;
      }
    }
    return std::move(variables_);
  }

 private:
  // Those of one word: .visible.global.v4
  void directives(std::string_view word) {
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t end = std::min(word.find('.', at + 1), word.size());
      const std::string_view one = word.substr(at, end - at);
      at = end;
      // What a parameter points at is no variable.
      if (one == ".param" || one == ".ptr") of_parameter_ = true;
      if (one == ".global" && !of_parameter_) global_ = awaited_ = true;
    }
  }

  void declared(std::string_view word) {
    if (word == "(" || word == "[") {
      pass(word == "(" ? ")" : "]");
    } else if (word == "=") {
      pass_values();
    } else if (word == ",") {
      awaited_ = true;
    } else if (awaited_ && PtxWords::in_word(word[0]) && (word[0] < '0' || word[0] > '9')) {
      add_name(variables_, word);
      awaited_ = false;
    }
  }

  void pass(std::string_view end) {
    for (auto word = words_.next(); !word.empty() && word != end; word = words_.next()) {
    }
  }

  void pass_values() {
    int depth = 0;
    for (auto word = words_.next(); !word.empty(); word = words_.next()) {
      if (word == "{" || word == "(") ++depth;
      if (word == "}" || word == ")") --depth;
      if (depth > 0) continue;
      if (word == ",") awaited_ = true;
      if (word == ";") global_ = false;
      if (word == "," || word == ";") return;
    }
  }

  PtxWords words_;
  CodeVariables variables_;
  bool of_parameter_ = false;
  bool global_ = false;   // The statement declares variables.
  bool awaited_ = false;  // Their next name.
};

}  // namespace

bool is_elf(Bytes file) {
  return file.size() >= sizeof kElfMagic && load<std::uint32_t>(file, 0) == kElfMagic;
}

std::optional<std::vector<ElfSection>> elf_sections(Bytes elf) {
  if (elf.size() < kElfHeaderBytes || !is_elf(elf)) return std::nullopt;
  const auto first = load<std::uint64_t>(elf, kSectionsAt);
  const auto count = load<std::uint16_t>(elf, kSectionCountAt);
  const auto naming = load<std::uint16_t>(elf, kSectionNamesAt);
  if (first > elf.size() || (elf.size() - first) / kSectionBytes < count || naming >= count) {
    return std::nullopt;
  }
  std::vector<ElfSection> sections(count);
  std::vector<std::uint32_t> names(count);
  Reader reader(elf.subspan(first, count * kSectionBytes));
  for (std::size_t i = 0; i < count; ++i) {
    ElfSection& section = sections[i];
    reader.read(names[i]);
    reader.read(section.type);
    reader.take_bytes(16);
    reader.read(section.offset);
    reader.read(section.size);
    reader.read(section.link);
    reader.take_bytes(20);
  }
  for (std::size_t i = 0; i < count; ++i) {
    sections[i].name = name_at(elf, sections[naming].offset, names[i]);
  }
  return sections;
}

CodeVariables variables_of_file(Bytes file) {
  return sorted(is_elf(file) ? variables_of_elf(file) : Statements(text_of(file)).variables());
}

std::vector<CodeVariables> variables_of_image(Bytes image, ComputeCapability capability) {
  const auto fatbin = Fatbin::parse(image);
  if (!fatbin) return {variables_of_file(image)};
  std::vector<CodeVariables> all;
  const Candidates fits = candidates(*fatbin, capability);
  for (const auto& indices : {fits.cubins, fits.ptx}) {
    for (const std::size_t index : indices) {
      const FatbinFile& file = fatbin->files()[index];
      if (file.packing == Packing::kNone) {
        all.push_back(variables_of_file(file.stored));
      } else if (const auto unpacked = unpack(file)) {
        all.push_back(variables_of_file(*unpacked));
      } else {
        all.push_back({{}, false});
      }
    }
  }
  return all;
}

bool names_literal(std::string_view variable) {
  return variable.starts_with("$str") || variable.starts_with("__unnamed_");
}

}  // namespace flyt::cuda
