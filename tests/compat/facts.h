// Facts: what a header says about a name, in a form that can be compared with another header's.
#pragma once

#include <span>
#include <string>
#include <typeinfo>

namespace flyt::compat {

struct Fact {
  const char* name;
  long long value = 0;      // Of a constant; of a type its size; of a member its offset.
  long long alignment = 0;  // Of a type.
  // Told by its mangled name, in which tags, constness and pointer depth all count.
  const std::type_info& (*type)() = nullptr;

  std::string text() const {
    return std::to_string(value) + "/" + std::to_string(alignment) + " " +
           (type != nullptr ? type().name() : "");
  }
};

// Of our generated types and prototypes, and of the CUDA toolkit's cuda.h: the same names in the
// same order.
std::span<const Fact> our_facts();
std::span<const Fact> toolkit_facts();

}  // namespace flyt::compat
