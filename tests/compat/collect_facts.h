// Turns the generated list into facts, for whichever header was included before.
#pragma once

#include <cstddef>
#include <typeinfo>

#include "tests/compat/facts.h"

namespace {

// Through a pointer, because typeid drops the constness of T itself.
template <class T>
const std::type_info& type_of() {
  return typeid(T*);
}

}  // namespace

// Some constants are pointers, hence the C casts.
#define FACT_VALUE(id) {#id, (long long)(id), 0, nullptr},
#define FACT_TYPE(id) {#id, sizeof(id), alignof(id), type_of<id>},
#define FACT_MEMBER(type, path) \
  {#type "." #path, offsetof(type, path), 0, type_of<decltype(((type*)nullptr)->path)>},
#define FACT_FUNCTION(id) {#id, 0, 0, type_of<decltype(id)>},
