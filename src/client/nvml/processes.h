// Processes on the client's own machine: what NVML tells of those that use a GPU.
#pragma once

#include <string>
#include <vector>

#include "nvml/types.h"

namespace flyt::client::nvml {

// The program's name as it was started; empty if there is no such process.
std::string process_name(unsigned int pid);

// Those that use a GPU.
nvmlReturn_t fetch_processes(nvmlDevice_t device, std::vector<nvmlProcessInfo_t>& processes);

}  // namespace flyt::client::nvml
