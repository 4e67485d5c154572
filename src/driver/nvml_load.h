// NVIDIA's NVML of this machine, as a table of functions.
#pragma once

#include <string>

#include "base/result.h"
#include "driver/nvml_table.h"

namespace flyt::driver {

// Loads libnvidia-ml.so.1 from where drivers put it; never our own client library. The library
// stays loaded.
Result<NvmlTable> load_nvml();
// The same from one path.
Result<NvmlTable> load_nvml(const std::string& path);

// What a machine without NVML has: every function answers NVML_ERROR_NOT_SUPPORTED.
NvmlTable no_nvml();

}  // namespace flyt::driver
