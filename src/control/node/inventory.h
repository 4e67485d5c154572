// Inventory: the GPUs of this machine, as the driver that will run on them tells them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/node/config.h"
#include "control/node/control_watchdog.h"
#include "control/node/lease.h"

namespace flyt::node {

// UUIDs of the GPUs: NVML's, empty where it says that a GPU is lost, or invented ones for software
// GPUs. kNotFound: there is no NVML or no GPU, with what to do.
Result<std::vector<std::string>> find_gpus(const Config& config);

// Starts a server on one GPU for a moment and asks it: multiprocessors, groups, memory.
Result<Gpu> probe_gpu(const Config& config, std::uint32_t index, const std::string& uuid,
                      ControlWatchdog& watchdog);

// How a driver with so many multiprocessors, `usual` of them in a group, cuts them, given how many
// groups of the usual size it makes: the rest, if any, is the last group.
std::vector<std::uint32_t> groups_of(std::uint32_t sms, std::uint32_t usual, std::uint32_t count);

}  // namespace flyt::node
