// ContextStorage: values that CUDA's libraries keep with a context, by a key of their own.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::cuda {

// Safe from any thread.
class ContextStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);

  void put(CUcontext context, void* key, void* value, Destructor destructor) EXCLUDES(mutex_);
  // False where nothing stands under the key. Does not call the destructor.
  bool erase(CUcontext context, void* key) EXCLUDES(mutex_);
  bool get(CUcontext context, void* key, void** value) EXCLUDES(mutex_);
  // The context ends: its values go, and their destructors run, without a lock held.
  void end(CUcontext context) EXCLUDES(mutex_);

 private:
  struct Value {
    void* value = nullptr;
    Destructor destructor = nullptr;
  };
  Mutex mutex_;
  std::map<std::pair<CUcontext, void*>, Value> values_ GUARDED_BY(mutex_);
};

}  // namespace flyt::cuda
