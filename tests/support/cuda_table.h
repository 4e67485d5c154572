// client_table(): all calls of our own client library, which driver::load refuses, rightly, for
// servers.
#pragma once

#include <dlfcn.h>

#include "driver/table.h"
#include "tests/support/server_process.h"

namespace flyt::tests {

// A call that is missing is null.
inline driver::Table client_table() {
  driver::Table table;
  void* const library =
      ::dlopen(built_library("client/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  driver::fill(
      table, [](void* from, const char* name) { return ::dlsym(from, name); }, library,
      [](void*, std::string_view) {}, nullptr);
  return table;
}

}  // namespace flyt::tests
