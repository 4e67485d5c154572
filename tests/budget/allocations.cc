#include "tests/budget/allocations.h"

#include <errno.h>

#include <atomic>
#include <cstddef>

// The program's own functions come before the C library's, for libraries, too: each counts, and
// hands on. `operator new` of whichever C++ library ends here as well.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace flyt::budget {
namespace {

thread_local constinit std::uint64_t of_this_thread = 0;
constinit std::atomic<std::uint64_t> of_all{0};

void count() {
  ++of_this_thread;
  of_all.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Allocations allocations() {
  return {of_this_thread, of_all.load(std::memory_order_relaxed) - of_this_thread};
}

}  // namespace flyt::budget

#pragma GCC visibility push(default)
extern "C" {

// lint: allow(memory): it stands in its place
void* malloc(std::size_t size) {
  flyt::budget::count();
  return __libc_malloc(size);
}
// lint: allow(memory): it stands in its place
void* calloc(std::size_t count, std::size_t size) {
  flyt::budget::count();
  return __libc_calloc(count, size);
}
// lint: allow(memory): it stands in its place
void* realloc(void* memory, std::size_t size) {
  flyt::budget::count();
  return __libc_realloc(memory, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  flyt::budget::count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  flyt::budget::count();
  return __libc_memalign(alignment, size);
}
// lint: allow(memory): it stands in its place
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  flyt::budget::count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"
#pragma GCC visibility pop
