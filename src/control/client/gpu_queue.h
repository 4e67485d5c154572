// GpuQueue: how a command of this machine awaits its virtual GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace flyt::control {

struct GpuQueue {
  std::uint32_t ahead = 0;
  std::string why;  // May be empty.
};

// Whether a client manager serves this machine; FLYT_CLIENT_SOCKET names another socket than its
// usual one.
bool has_client_manager();

// Returns when a program of this user would get the GPU at once. kTimeout tells how many were still
// before it.
Status await_gpu(Duration patience, const std::function<void(const GpuQueue&)>& tell);

// What the client manager says about itself, as JSON.
Result<std::string> client_manager_status();

}  // namespace flyt::control
