// Peers: what GPUs of this server are to each other.
#include "server/hooks_nvml_link.h"

#include <algorithm>
#include <array>
#include <vector>

namespace flyt::server::nvml::hooks {
namespace {

// As the CUDA driver has it, where no NVML tells.
nvmlGpuP2PStatus_t status(Fleet::Reach reach, nvmlGpuP2PCapsIndex_t capability) {
  const bool plain =
      capability == NVML_P2P_CAPS_INDEX_READ || capability == NVML_P2P_CAPS_INDEX_WRITE;
  const bool good = (plain && reach != Fleet::Reach::kNot) ||
                    (capability == NVML_P2P_CAPS_INDEX_ATOMICS && reach == Fleet::Reach::kAtomic);
  return good ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
}

}  // namespace

nvmlReturn_t nvml_peer_status(Request& request, const commands::NvmlPeerStatus& command,
                              commands::NvmlPeerStatus::Reply& reply) {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  const MonitorParts& monitor = request.monitor();
  if (!request.index(command.device, from) || !request.index(command.peer, to) ||
      command.capability < 0 || command.capability >= NVML_P2P_CAPS_INDEX_UNKNOWN) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (monitor.native.present()) {
    return request.driver().nvmlDeviceGetP2PStatus(
        monitor.native.device(from), monitor.native.device(to), command.capability, &reply.status);
  }
  reply.status = status(monitor.fleet.reach_of(from, to), command.capability);
  return NVML_SUCCESS;
}

// Without NVML nothing is known but that all are in one machine.
nvmlReturn_t nvml_common_ancestor(Request& request, const commands::NvmlCommonAncestor& command,
                                  commands::NvmlCommonAncestor::Reply& reply) {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  const MonitorParts& monitor = request.monitor();
  if (!request.index(command.device, from) || !request.index(command.peer, to)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (monitor.native.present()) {
    return request.driver().nvmlDeviceGetTopologyCommonAncestor(
        monitor.native.device(from), monitor.native.device(to), &reply.level);
  }
  reply.level = from == to ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

void nvml_nearest_gpus(Request request, const commands::NvmlNearestGpus& command) {
  commands::NvmlNearestGpus::Reply reply;
  std::uint32_t of = 0;
  const MonitorParts& monitor = request.monitor();
  if (!request.index(command.device, of)) {
    return request.reply(NVML_ERROR_INVALID_ARGUMENT, reply);
  }
  std::vector<std::uint32_t> near;
  const auto gpus = static_cast<std::uint32_t>(monitor.fleet.gpus.size());
  nvmlReturn_t result = NVML_SUCCESS;
  if (monitor.native.present()) {
    std::array<nvmlDevice_t, 4 * flyt::nvml::kGpusMax> found{};
    auto count = static_cast<unsigned int>(found.size());
    result = request.driver().nvmlDeviceGetTopologyNearestGpus(monitor.native.device(of),
                                                               command.level, &count, found.data());
    const auto end = found.begin() + std::min<std::size_t>(count, found.size());
    for (std::uint32_t i = 0; i < gpus && result == NVML_SUCCESS; ++i) {
      // Others of the machine may not be the server's.
      if (std::find(found.begin(), end, monitor.native.device(i)) != end) near.push_back(i);
    }
  } else if (command.level == NVML_TOPOLOGY_SYSTEM) {
    for (std::uint32_t i = 0; i < gpus; ++i) {
      if (i != of) near.push_back(i);
    }
  }
  reply.gpus = wire::List<std::uint32_t>(near);
  request.reply(result, reply);
}

}  // namespace flyt::server::nvml::hooks
