#include "client/device_cache.h"

#include <cstring>
#include <string>

#include "client/exchange.h"
#include "commands/device.h"
#include "cuda/error_text.h"

namespace flyt::client {
namespace {

constexpr int kDevicesMax = 64;

// The name of a result, or its number if it has none.
std::string name_of(std::uint32_t result) {
  const char* name = cuda::error_name(static_cast<CUresult>(result));
  return name != nullptr ? name : "result " + std::to_string(result);
}

// What a device can do natively but not for a program whose memory is elsewhere: its kernels
// reach a mirror of that memory (HostMirror), devices other than GPUs none of it, and processes
// only what the server's exchange passes on.
constexpr std::array kLocalOnly = {
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
    CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
};

// Pools are kept by this side, over any driver.
void adapt(Device& device) {
  for (const CUdevice_attribute attribute : kLocalOnly) device.set(attribute, 0);
  device.set(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1);
  device.set(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

// What this side computes with, and takes for sizes.
bool is_sound(const Device& device) {
  const auto within = [&device](CUdevice_attribute attribute, std::int32_t least,
                                std::int32_t most) {
    const std::int32_t value = device.attribute(attribute);
    return value >= least && value <= most;
  };
  return within(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1, 1024) &&
         within(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1, 1 << 16) &&
         within(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0, 999) &&
         within(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0, 9);
}

Result<Device> fetch_device(rpc::Channel& channel, int ordinal) {
  commands::DescribeDevice::Reply reply;
  rpc::Reply answer;
  const commands::DescribeDevice command{.ordinal = ordinal};
  if (!exchange(channel, 0, command, reply, answer)) return channel.error();
  if (answer.result() != CUDA_SUCCESS || reply.uuid.size() != sizeof(CUuuid)) {
    return Error{ErrorCode::kInvalid, "the server cannot describe its device " +
                                          std::to_string(ordinal) + ": " +
                                          name_of(answer.result())};
  }
  Device device;
  device.name = std::string(reply.name);
  std::memcpy(&device.uuid, reply.uuid.data(), sizeof(CUuuid));
  device.total_memory = reply.total_memory;
  device.pci_bus_id = std::string(reply.pci_bus_id);
  device.sm_affinity = reply.sm_affinity != 0;
  reply.attributes.copy_to(device.attributes);
  reply.known.copy_to(device.known);
  adapt(device);
  if (!is_sound(device)) {
    return Error{ErrorCode::kInvalid,
                 "the server's device " + std::to_string(ordinal) + " is none that there can be"};
  }
  return device;
}

}  // namespace

Result<DeviceCache> DeviceCache::fetch(rpc::Channel& channel) {
  commands::DescribeServer::Reply reply;
  rpc::Reply answer;
  if (!exchange(channel, 0, commands::DescribeServer{}, reply, answer)) return channel.error();
  if (answer.result() != CUDA_SUCCESS) {
    return Error{ErrorCode::kUnsupported,
                 "the server's driver does not start: " + name_of(answer.result())};
  }
  if (reply.device_count < 0 || reply.device_count > kDevicesMax) {
    return Error{ErrorCode::kUnsupported,
                 "the server says that it has " + std::to_string(reply.device_count) +
                     " devices; at most " + std::to_string(kDevicesMax) + " are possible"};
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

void DeviceCache::deny_virtual_memory() {
  for (Device& device : devices_) {
    device.set(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  }
}

}  // namespace flyt::client
