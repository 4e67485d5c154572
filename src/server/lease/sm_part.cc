#include "server/lease/sm_part.h"

namespace flyt::server {

CUresult SmParts::describe(CUdevice device, const std::vector<std::uint32_t>& groups,
                           CUdevResourceDesc& description) {
  const Lock lock(mutex_);
  const auto known = descriptions_.find(groups);
  if (known != descriptions_.end()) {
    description = known->second;
    return CUDA_SUCCESS;
  }
  const CUresult result = describe_groups(driver_, device, groups, description);
  if (result == CUDA_SUCCESS) descriptions_[groups] = description;
  return result;
}

CUresult SmParts::make(CUdevice device, CUcontext primary, const SmGrant& grant,
                       std::shared_ptr<SmPart>& part) {
  if (!grant.confined()) {
    part = std::make_shared<SmPart>(driver_, grant, primary, nullptr);
    return CUDA_SUCCESS;
  }
  CUdevResourceDesc description = nullptr;
  Confined confined;
  CUresult result = describe(device, grant.groups, description);
  if (result == CUDA_SUCCESS) result = confine(driver_, device, description, confined);
  if (result != CUDA_SUCCESS) return result;
  part = std::make_shared<SmPart>(driver_, grant, confined.context, confined.green);
  return CUDA_SUCCESS;
}

}  // namespace flyt::server
