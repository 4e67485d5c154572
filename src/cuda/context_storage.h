// ContextStorage: values that CUDA's libraries keep with a context, by a key of their own.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::cuda {

// Safe from any thread.
class ContextStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);

  void put(CUcontext context, void* key, void* value, Destructor destructor) {
    const Lock lock(mutex_);
    values_[{context, key}] = {value, destructor};
  }
  // False where nothing stands under the key. Does not call the destructor.
  bool erase(CUcontext context, void* key) {
    const Lock lock(mutex_);
    return values_.erase({context, key}) != 0;
  }
  bool get(CUcontext context, void* key, void** value) {
    const Lock lock(mutex_);
    const auto found = values_.find({context, key});
    if (found == values_.end()) return false;
    *value = found->second.value;
    return true;
  }
  // The context ends: its values go, and their destructors run, without a lock held.
  void end(CUcontext context) {
    std::vector<std::pair<void*, Value>> ended;
    {
      const Lock lock(mutex_);
      for (auto at = values_.begin(); at != values_.end();) {
        if (at->first.first != context) {
          ++at;
          continue;
        }
        ended.emplace_back(at->first.second, at->second);
        at = values_.erase(at);
      }
    }
    for (const auto& [key, value] : ended) {
      if (value.destructor != nullptr) value.destructor(context, key, value.value);
    }
  }

 private:
  struct Value {
    void* value = nullptr;
    Destructor destructor = nullptr;
  };
  Mutex mutex_;
  std::map<std::pair<CUcontext, void*>, Value> values_ GUARDED_BY(mutex_);
};

}  // namespace flyt::cuda
