// The role of a connection that asks about GPUs: NVML's commands alone, and no session of CUDA.
#pragma once

#include "wire/hello.h"

namespace flyt::wire {

// The number after those of ConnectionRole; never changed or reused, as they are.
inline constexpr auto kMonitorRole = static_cast<ConnectionRole>(2);

}  // namespace flyt::wire
