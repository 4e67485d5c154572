// Images: arrays as the program sees them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/annotations.h"
#include "client/context.h"
#include "client/handle_table.h"
#include "cuda/array_facts.h"
#include "cuda/types.h"

namespace flyt::client {

// Constant once published.
struct ArrayState {
  ContextState* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  cuda::ArrayExtent extent;
  std::uint64_t mipmapped = 0;  // Handle of the mipmapped array that it is a level of.

  void reset() { mipmapped = 0; }
};

struct MipmappedArrayState {
  ContextState* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  unsigned levels = 0;
  // Handles of the levels that were asked for, else 0. Guarded by Images::mutex.
  std::vector<std::uint64_t> arrays;

  void reset() { arrays.clear(); }
};

using ArrayTable = HandleTable<ArrayState>;

// Safe from any thread.
struct Images {
  ArrayTable arrays{wire::HandleKind::kArray};
  HandleTable<MipmappedArrayState> mipmapped_arrays{wire::HandleKind::kMipmappedArray};
  Mutex mutex;

  // Drops what lives in a context.
  void on_context_destroyed(const ContextState& context);
};

}  // namespace flyt::client
