#include "server/code/launch_attributes.h"

#include <cstring>

#include "server/session.h"

namespace flyt::server {

CUresult LaunchAttributes::admit_window(const Request& request,
                                        const CUaccessPolicyWindow& window) {
  const std::size_t bytes = window.num_bytes;
  const Regions& regions = request.session().regions();
  return bytes == 0 || regions.allowed(address_of(window.base_ptr), bytes)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult LaunchAttributes::admit(const Request& request, CUlaunchAttribute& attribute) {
  switch (static_cast<int>(attribute.id)) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return request.resolve(attribute.value.programmaticEvent.event) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return request.resolve(attribute.value.launchCompletionEvent.event)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return admit_window(request, attribute.value.accessPolicyWindow);
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult LaunchAttributes::take(const Request& request, Bytes attributes) {
  const std::size_t count = attributes.size() / sizeof(CUlaunchAttribute);
  if (attributes.size() % sizeof(CUlaunchAttribute) != 0 || count > kCountMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (count == 0) return CUDA_SUCCESS;
  std::memcpy(static_cast<void*>(attributes_.data()), attributes.data(), attributes.size());
  count_ = static_cast<unsigned int>(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (const CUresult bad = admit(request, attributes_[i]); bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

}  // namespace flyt::server
