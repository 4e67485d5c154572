// What never changes about the devices.
#include "server/hooks_device.h"

#include <algorithm>
#include <array>

#include "server/lease/usage_board.h"
#include "server/session.h"

namespace flyt::server::hooks {

CUresult describe_server(Request& request, const commands::DescribeServer&,
                         commands::DescribeServer::Reply& reply) {
  CUresult result = request.driver().cuDriverGetVersion(&reply.driver_version);
  if (result == CUDA_SUCCESS) result = request.driver().cuDeviceGetCount(&reply.device_count);
  return result;
}

void describe_device(Request request, const commands::DescribeDevice& command) {
  const driver::Table& driver = request.driver();
  commands::DescribeDevice::Reply reply;
  CUdevice device = 0;
  std::array<char, 256> name{};
  std::array<char, 64> pci_bus_id{};
  CUuuid uuid{};
  std::size_t total = 0;
  CUresult result = driver.cuDeviceGet(&device, command.ordinal);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetName(name.data(), 256, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetUuid_v2(&uuid, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceTotalMem_v2(&total, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetPCIBusId(pci_bus_id.data(), 64, device);
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  std::array<std::int32_t, CU_DEVICE_ATTRIBUTE_MAX> attributes{};
  std::array<std::uint8_t, CU_DEVICE_ATTRIBUTE_MAX> known{};
  for (int i = 1; i < static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX); ++i) {
    int value = 0;
    const auto attribute = static_cast<CUdevice_attribute>(i);
    if (driver.cuDeviceGetAttribute(&value, attribute, device) != CUDA_SUCCESS) continue;
    attributes[static_cast<std::size_t>(i)] = value;
    known[static_cast<std::size_t>(i)] = 1;
  }
  const SmGrant grant = request.session().grant();
  if (grant.confined() && device == 0) {
    attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = static_cast<std::int32_t>(grant.granted);
  }
  int affinity = 0;
  if (driver.cuDeviceGetExecAffinitySupport(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT, device) !=
      CUDA_SUCCESS) {
    affinity = 0;
  }
  reply.name = name.data();
  reply.uuid = bytes_at(&uuid, sizeof uuid);
  const std::uint64_t limit = own_usage().quota().limit;
  reply.total_memory = limit == 0 || device != 0 ? total : std::min<std::uint64_t>(total, limit);
  reply.pci_bus_id = pci_bus_id.data();
  reply.attributes = wire::List<std::int32_t>(std::span<const std::int32_t>(attributes));
  reply.known = wire::List<std::uint8_t>(std::span<const std::uint8_t>(known));
  reply.sm_affinity = affinity;
  request.reply(CUDA_SUCCESS, reply);
}

CUresult texture_1d_linear_width(Request& request, const commands::Texture1dLinearWidth& command,
                                 commands::Texture1dLinearWidth::Reply& reply) {
  std::size_t width = 0;
  const CUresult result = request.driver().cuDeviceGetTexture1DLinearMaxWidth(
      &width, static_cast<CUarray_format>(command.format), command.channels, command.device);
  reply.width = width;
  return result;
}

}  // namespace flyt::server::hooks
