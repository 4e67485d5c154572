#include "client/device_cache.h"

#include <cstring>

#include "client/exchange.h"
#include "commands/device.h"

namespace flyt::client {
namespace {

constexpr int kDevicesMax = 64;

Result<Device> fetch_device(rpc::Channel& channel, int ordinal) {
  commands::DescribeDevice::Reply reply;
  rpc::Reply answer;
  const commands::DescribeDevice command{.ordinal = ordinal};
  if (!exchange(channel, 0, command, reply, answer)) return channel.error();
  if (answer.result() != CUDA_SUCCESS || reply.uuid.size() != sizeof(CUuuid)) {
    return Error{ErrorCode::kInvalid, "the server cannot describe its device " +
                                          std::to_string(ordinal) + ": result " +
                                          std::to_string(answer.result())};
  }
  Device device;
  device.name = std::string(reply.name);
  std::memcpy(&device.uuid, reply.uuid.data(), sizeof(CUuuid));
  device.total_memory = reply.total_memory;
  device.pci_bus_id = std::string(reply.pci_bus_id);
  device.sm_affinity = reply.sm_affinity != 0;
  reply.attributes.copy_to(device.attributes);
  reply.known.copy_to(device.known);
  return device;
}

}  // namespace

Result<DeviceCache> DeviceCache::fetch(rpc::Channel& channel) {
  commands::DescribeServer::Reply reply;
  rpc::Reply answer;
  if (!exchange(channel, 0, commands::DescribeServer{}, reply, answer)) return channel.error();
  if (answer.result() != CUDA_SUCCESS || reply.device_count < 0 ||
      reply.device_count > kDevicesMax) {
    return Error{ErrorCode::kUnsupported,
                 "the server's driver does not start: result " + std::to_string(answer.result())};
  }
  DeviceCache cache;
  cache.driver_version_ = reply.driver_version;
  for (int ordinal = 0; ordinal < reply.device_count; ++ordinal) {
    auto device = fetch_device(channel, ordinal);
    if (!device) return std::move(device).error();
    cache.devices_.push_back(std::move(device).value());
  }
  return cache;
}

}  // namespace flyt::client
