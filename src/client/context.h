// Contexts as the program sees them, and what each thread has current.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::client {

struct ContextStorage;  // Values that CUDA's libraries hang onto a context (context_storage.h).

// One context. Fields without a lock are written before the handle is published and constant
// afterwards.
struct ContextState {
  ContextState();
  ~ContextState();
  void reset();

  std::uint64_t handle = 0;
  std::uint32_t index = 0;  // wire::handle_index(handle), as command headers carry it.
  CUdevice device = 0;
  bool primary = false;
  std::uint32_t api_version = 0;
  std::uint64_t id = 0;  // cuCtxGetId
  std::atomic<std::uint32_t> flags{0};
  // The device error that every later call of this context gets; 0: none.
  std::atomic<int> sticky{0};
  std::atomic<int> cache_config{0};
  // cuCtxGetLimit, by CUlimit; ~0: not asked yet.
  std::array<std::atomic<std::uint64_t>, CU_LIMIT_MAX> limits;
  std::unique_ptr<ContextStorage> storage;
};

// What one thread of the program has. Belongs to its thread.
struct ThreadState {
  // Client thread number in command headers: 1 and up, never used again by another thread.
  std::uint32_t number = 0;
  // The current context: a handle value, 0 for none. The pushed ones lie below it in `stack`.
  std::uint64_t current = 0;
  // The State of `current` at the time it became current; valid while its handle still is.
  ContextState* current_state = nullptr;
  std::vector<std::uint64_t> stack;
};

// The calling thread's.
ThreadState& thread_state();

}  // namespace flyt::client
