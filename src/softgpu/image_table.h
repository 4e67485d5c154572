// ImageTable: texture or surface objects by their handles, for programs and for kernels.
#pragma once

#include <memory>
#include <utility>

#include "softgpu/context.h"
#include "softgpu/handle_table.h"

namespace flyt::softgpu {

// Programs destroy an object as soon as the last kernel that reads it is launched, and NVIDIA's
// driver lets such a kernel finish. T has `context`, the handle of its context. Safe from any
// thread.
template <class T>
class ImageTable {
 public:
  explicit ImageTable(HandleKind kind)
      : objects_(kind), ending_(std::make_shared<HandleTable<T>>(kind)) {}

  std::uint64_t add(std::shared_ptr<T> object) { return objects_.add(std::move(object)); }
  // As programs have it: null where there is no such handle, or no longer.
  std::shared_ptr<T> find(std::uint64_t handle) const { return objects_.find(handle); }
  // As kernels have it: what was destroyed behind them is still there.
  std::shared_ptr<T> find_for_kernel(std::uint64_t handle) const {
    auto object = objects_.find(handle);
    return object != nullptr ? object : ending_->find(handle);
  }
  // False: there is no such handle. `contexts`: where its context is looked up.
  bool destroy(const HandleTable<Context>& contexts, std::uint64_t handle) {
    const std::shared_ptr<T> object = objects_.find(handle);
    if (object == nullptr) return false;
    const std::shared_ptr<Context> context = contexts.find(object->context);
    // There before it is gone here, so that kernels always find it.
    if (context != nullptr) ending_->put(handle, object);
    // Another thread may have been first, and has seen to its end.
    if (objects_.take(handle) == nullptr) return false;
    if (context == nullptr) return true;
    context->mark(*context->whole(), [ending = ending_, handle] { ending->take(handle); });
    return true;
  }
  // At the end of their context.
  void take_all_of(std::uint64_t context) {
    const auto of_it = [context](const T& object) { return object.context == context; };
    objects_.take_if(of_it);
    ending_->take_if(of_it);
  }

 private:
  HandleTable<T> objects_;
  // Shared with the work that takes them out.
  const std::shared_ptr<HandleTable<T>> ending_;
};

}  // namespace flyt::softgpu
