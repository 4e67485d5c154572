#include "softgpu/user_object.h"

#include "softgpu/current.h"

namespace flyt::softgpu {

bool UserObject::release(std::uint64_t count) {
  std::uint64_t held = references_.load();
  do {
    if (count > held) return false;
  } while (!references_.compare_exchange_weak(held, held - count));
  if (held == count) {
    store_.objects().take(handle_);
    workers_.run([destroy = destroy_, pointer = pointer_] {
      const InHostFunction scope(InHostFunction::Kind::kFunction);
      destroy(pointer);
    });
  }
  return true;
}

}  // namespace flyt::softgpu
