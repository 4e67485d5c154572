// What a server wants to know of code before it loads it, told from the code alone.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace flyt::cuda {

// Code that declares more than can be told counts as that.
inline constexpr std::uint64_t kCodeBytesUnknown = ~std::uint64_t{0};

struct CodeFacts {
  // How much memory of a GPU it may take: the size of the image, or of the largest file of a fat
  // binary unpacked, and of the variables that it declares: `.global` and `.const` of PTX, sections
  // without contents of a cubin. Code that a driver makes of PTX may be larger, variables never
  // are.
  std::uint64_t loaded_bytes = kCodeBytesUnknown;
  // It names the function that prints, or cannot be looked into.
  bool may_print = true;
  // It may leave something that a later kernel finds where nobody else does: it allocates on the
  // device, or cannot be looked into.
  bool may_remember = true;
  // It has variables in global memory (cuda/code_variables.h), or may have.
  bool has_variables = true;

  bool operator==(const CodeFacts&) const = default;
};

// Unpacks what is packed: tens of milliseconds for the large fat binaries of frameworks. None of
// the bytes is trusted.
CodeFacts code_facts(Bytes image);

// Whether something must be unpacked for that: what is not packed is looked into at once.
bool has_packed_code(Bytes image);

}  // namespace flyt::cuda
