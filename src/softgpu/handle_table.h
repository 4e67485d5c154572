// HandleTable: the objects behind the handles of one kind. Handles are looked up, never followed.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace flyt::softgpu {

enum class HandleKind : std::uint64_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kLink,
  kPool,
  kAllocation,
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
  kArray,
  kMipmappedArray,
  kTexture,
  kSurface,
  kTextureReference,
  kSurfaceReference,
  kGreenContext,
  kResourceDescription,
};

// A handle as the application sees it: a number that looks like an address where no memory is.
inline constexpr std::uint64_t kHandleBase = 0x5A00'0000'0000;
inline constexpr unsigned kHandleKindShift = 34;
inline constexpr std::uint64_t kHandleStep = 16;

template <class H>
H to_handle(std::uint64_t value) {
  return static_cast<H>(pointer_at(value));
}
template <class H>
std::uint64_t from_handle(H handle) {
  return address_of(handle);
}

// Values are never used again, unless asked for. Safe from any thread. Whoever has tables names
// their kinds in its constructor, in a .cc: beside the member, making and ending one would be
// compiled in every file.
template <class T>
class HandleTable {
 public:
  explicit HandleTable(HandleKind kind)
      : base_(kHandleBase + (static_cast<std::uint64_t>(kind) << kHandleKindShift)), next_(base_) {}

  // From now on what take() took out comes back, the last one first, by the next add().
  void let_return() {
    const std::unique_lock lock(mutex_);
    returns_ = true;
  }
  // A handle for put().
  std::uint64_t reserve() {
    const std::unique_lock lock(mutex_);
    return next_ += kHandleStep;
  }
  std::uint64_t add(std::shared_ptr<T> object) {
    const std::unique_lock lock(mutex_);
    std::uint64_t handle = 0;
    if (gone_.empty()) {
      handle = next_ += kHandleStep;
    } else {
      handle = gone_.back();
      gone_.pop_back();
    }
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  // Gives an object the handle that an earlier one had, or that was reserved.
  void put(std::uint64_t handle, std::shared_ptr<T> object) {
    const std::unique_lock lock(mutex_);
    objects_.insert_or_assign(handle, std::move(object));
  }
  // Null where there is no such handle.
  std::shared_ptr<T> find(std::uint64_t handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  // The object, which has no handle any more.
  std::shared_ptr<T> take(std::uint64_t handle) {
    const std::unique_lock lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    if (returns_) gone_.push_back(handle);
    return object;
  }
  // Was it ever given out?
  bool issued(std::uint64_t handle) const {
    const std::shared_lock lock(mutex_);
    return handle > base_ && handle <= next_ && (handle - base_) % kHandleStep == 0;
  }
  // Calls visit(object) for all of them. It must not come back to the table.
  template <class Visit>
  void each(Visit visit) const {
    const std::shared_lock lock(mutex_);
    for (const auto& [handle, object] : objects_) visit(*object);
  }
  // Takes all objects for which `leave(object)` is false.
  template <class Predicate>
  std::vector<std::shared_ptr<T>> take_if(Predicate wanted) {
    const std::unique_lock lock(mutex_);
    std::vector<std::shared_ptr<T>> taken;
    for (auto at = objects_.begin(); at != objects_.end();) {
      if (!wanted(*at->second)) {
        ++at;
        continue;
      }
      taken.push_back(std::move(at->second));
      at = objects_.erase(at);
    }
    return taken;
  }

 private:
  const std::uint64_t base_;
  mutable std::shared_mutex mutex_;  // Guards all below.
  std::uint64_t next_;
  bool returns_ = false;
  std::vector<std::uint64_t> gone_;  // Those that come back.
  std::unordered_map<std::uint64_t, std::shared_ptr<T>> objects_;
};

}  // namespace flyt::softgpu
