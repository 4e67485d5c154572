#include "control/node/inventory.h"

#include <signal.h>

#include <algorithm>

#include "control/node/nvml_gpus.h"
#include "control/node/process.h"
#include "control/node/server_files.h"

namespace flyt::node {
namespace {

constexpr Duration kProbeTime = std::chrono::seconds(60);
constexpr std::uint32_t kUsualGroup = 8;
constexpr Duration kEndTime = std::chrono::seconds(2);
// The most groups that the server grants: it alone knows how the chip can be cut.
std::vector<std::uint32_t> count_groups(ControlLink& link, const control::LeaseState& state) {
  for (std::uint32_t count = state.gpu_sms / state.group_sms; count > 0; --count) {
    const auto granted = link.set_sms(count * state.group_sms);
    if (granted && granted->groups.size() == count) {
      return groups_of(state.gpu_sms, state.group_sms, count);
    }
    if (link.lost()) break;
  }
  return {state.gpu_sms};
}

Status ask_groups(ControlLink& link, const control::LeaseState& state, Gpu& gpu) {
  // What cannot be confined is still counted.
  gpu.divisible = state.group_sms != 0;
  gpu.groups = groups_of(state.gpu_sms, kUsualGroup, UINT32_MAX);
  if (!gpu.divisible) return {};
  const auto chip = link.chip();
  if (chip) {
    gpu.groups = groups_of(chip->sms, chip->group_sms, chip->groups);
    gpu.rest_is_group = chip->last_sms != 0;
  } else if (chip.error().code == ErrorCode::kUnsupported) {
    gpu.groups = count_groups(link, state);
  } else {
    return chip.error();
  }
  return {};
}

Result<Gpu> ask(const std::string& url, ControlWatchdog& watchdog) {
  auto link = ControlLink::connect(watchdog, url);
  if (!link) return std::move(link).error();
  const auto state = (*link)->describe();
  if (!state) return state.error();
  if (state->gpu_sms == 0 || state->gpu_memory == 0) {
    return Error{ErrorCode::kSystem, "the driver tells neither multiprocessors nor memory"};
  }
  Gpu gpu{.name = state->gpu_name};
  if (Status status = ask_groups(**link, *state, gpu); !status) return status.error();
  gpu.memory_bytes = state->gpu_memory;
  return gpu;
}

}  // namespace

std::vector<std::uint32_t> groups_of(std::uint32_t sms, std::uint32_t usual, std::uint32_t count) {
  if (usual == 0 || usual >= sms) return {sms};
  count = std::min(count, sms / usual);
  std::vector<std::uint32_t> groups(count, usual);
  if (const std::uint32_t rest = sms - count * usual; rest != 0) groups.push_back(rest);
  return groups;
}

Result<std::vector<std::string>> find_gpus(const Config& config) {
  if (config.soft == 0) {
    const auto nvml = NvmlGpus::open(config.nvml);
    if (!nvml) return nvml.error();
    return (*nvml)->uuids();
  }
  std::vector<std::string> uuids;
  for (std::uint32_t i = 0; i < config.soft; ++i) uuids.push_back("SOFT-" + std::to_string(i));
  return uuids;
}

Result<Gpu> probe_gpu(const Config& config, std::uint32_t index, const std::string& uuid,
                      ControlWatchdog& watchdog) {
  const ServerFiles files(config, "probe-" + std::to_string(index));
  if (Status status = files.prepare(); !status) return status.error();
  auto process = Process::start(probe_command(config, index, uuid, config.mode),
                                system_clock().now() + kProbeTime);
  Result<Gpu> gpu = process ? ask(files.control_url(), watchdog) : process.error();
  if (process) process->end(SIGINT, kEndTime);
  if (!gpu) {
    Error error = std::move(gpu).error();
    error.message = "GPU " + std::to_string(index) + ": " + error.message;
    if (const std::string said = tail_of(files.log(), 500); !said.empty()) {
      error.message += "; its server said: " + said;
    }
    files.remove();
    return error;
  }
  files.remove();
  gpu->index = index;
  gpu->uuid = uuid;
  gpu->mode = config.mode;
  gpu->reserve_bytes = config.reserve_bytes;
  return gpu;
}

}  // namespace flyt::node
