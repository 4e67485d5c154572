// Turns: loading code may shut the driver, as NVIDIA's does (FLYT_SOFTGPU_LOADS_WAIT): it waits for
// the GPU's work, and no other call gets in meanwhile.
#pragma once

#include <mutex>
#include <shared_mutex>

#include "softgpu/settings.h"

namespace flyt::softgpu {

// What a call holds while it is in the driver; nothing unless loads wait, or inside of a load.
std::shared_lock<std::shared_mutex> turn_of_call(const Settings& settings);

// While it lives, the calling thread alone is in the driver. Nothing unless loads wait.
class LoadTurn {
 public:
  explicit LoadTurn(const Settings& settings);
  ~LoadTurn();
  LoadTurn(const LoadTurn&) = delete;
  LoadTurn& operator=(const LoadTurn&) = delete;

  bool waits() const { return lock_.owns_lock(); }

 private:
  std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace flyt::softgpu
