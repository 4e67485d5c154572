#include "cuda/context_storage.h"

#include <vector>

namespace flyt::cuda {

void ContextStorage::put(CUcontext context, void* key, void* value, Destructor destructor) {
  const Lock lock(mutex_);
  values_[{context, key}] = {value, destructor};
}

bool ContextStorage::erase(CUcontext context, void* key) {
  const Lock lock(mutex_);
  return values_.erase({context, key}) != 0;
}

bool ContextStorage::get(CUcontext context, void* key, void** value) {
  const Lock lock(mutex_);
  const auto found = values_.find({context, key});
  if (found == values_.end()) return false;
  *value = found->second.value;
  return true;
}

void ContextStorage::end(CUcontext context) {
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

}  // namespace flyt::cuda
