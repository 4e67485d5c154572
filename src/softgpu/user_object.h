// UserObject: something of the program's that graphs hold, and destroy with the last of them.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/types.h"
#include "softgpu/graph_store.h"
#include "softgpu/workers.h"

namespace flyt::softgpu {

// Safe from any thread.
class UserObject {
 public:
  UserObject(GraphStore& store, Workers& workers, void* pointer, CUhostFn destroy,
             std::uint64_t references)
      : store_(store),
        workers_(workers),
        pointer_(pointer),
        destroy_(destroy),
        references_(references) {}

  // Its own handle, which goes with the last reference.
  void set_handle(std::uint64_t handle) { handle_ = handle; }

  void retain(std::uint64_t count) { references_.fetch_add(count); }
  // False where so many are not held. The destructor is called with the last one, on a thread of
  // the driver's: not from within any call.
  bool release(std::uint64_t count);

 private:
  GraphStore& store_;
  Workers& workers_;
  void* const pointer_;
  const CUhostFn destroy_;
  std::uint64_t handle_ = 0;
  std::atomic<std::uint64_t> references_;
};

}  // namespace flyt::softgpu
