// The monitor that this process has, and how often the program asked for it.
#pragma once

#include <memory>

#include "nvml/types.h"

namespace flyt::client::nvml {

class Monitor;

// As nvmlInit_v2: connects the first time, and again if the server was lost since.
nvmlReturn_t initialise();

// As nvmlShutdown: the last of as many as there were initialise() ends the connection.
nvmlReturn_t shut_down();

bool initialised();

// Null if the program has not initialised NVML. A child of fork() inherits that its parent did, and
// connects by itself when it first asks; null as well if it cannot.
std::shared_ptr<Monitor> current_monitor();

}  // namespace flyt::client::nvml
