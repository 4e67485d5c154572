// Calls of CUDA's device runtime: what kernels use to launch kernels (dynamic parallelism).
#pragma once

#include <string_view>

#include "softgpu/interpreter/program.h"

namespace flyt::ptx {

// kNone where the name is of none that is there. Their names begin with __cudaCDP2, and with cuda
// in code of before CUDA 12.
DeviceCall device_call_named(std::string_view name);

// As system_call().
Flow call_device(Warp& warp, DeviceCall call, const CallSite& site, Mask lanes);

}  // namespace flyt::ptx
