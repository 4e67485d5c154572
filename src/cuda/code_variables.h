// Variables of code: which ones it keeps in a GPU's global memory, told from the code alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "cuda/fatbin.h"

namespace flyt::cuda {

// Those of one file: what kernels may write, and may find there later.
struct CodeVariables {
  // More than that are not told. Those of one file.
  static constexpr std::size_t kNamesMax = 1 << 16;

  std::vector<std::string> names;  // As cuModuleGetGlobal takes them; sorted, each once.
  bool complete = true;            // False: there are others, which have no names.

  bool any() const { return !names.empty() || !complete; }
};

// Of one cubin, or of one text. None of the bytes is trusted.
CodeVariables variables_of_file(Bytes file);

// By file that a GPU may get, in the order in which drivers prefer them; one for what is no fat
// binary. Unpacks what is packed.
std::vector<CodeVariables> variables_of_image(Bytes image, ComputeCapability capability);

// Compilers give such names to texts that stand in the code, which nothing writes.
bool names_literal(std::string_view variable);

// Whether it begins as an ELF does.
bool is_elf(Bytes file);

// A section of an ELF.
struct ElfSection {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint32_t link = 0;  // Of symbols: the section of their names.
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};
// None if the bytes are no ELF, or its tables do not lie within.
std::optional<std::vector<ElfSection>> elf_sections(Bytes elf);

}  // namespace flyt::cuda
