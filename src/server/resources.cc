#include "server/resources.h"

#include <cstring>

namespace flyt::server {

std::uint64_t Resources::number_of(const CUdevResource& resource) {
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return 0;
  Content content;
  std::memcpy(content.data(), &resource, sizeof resource);
  const Lock lock(mutex_);
  const auto [known, fresh] = numbers_.try_emplace(content, last_ + 1);
  if (!fresh) return known->second;
  const std::uint64_t number = ++last_;
  contents_.emplace(number, content);
  if (contents_.size() > kResourcesMax) {
    numbers_.erase(contents_.begin()->second);
    contents_.erase(contents_.begin());
  }
  return number;
}

std::optional<CUdevResource> Resources::find(std::uint64_t number) const {
  const Lock lock(mutex_);
  const auto found = contents_.find(number);
  if (found == contents_.end()) return std::nullopt;
  CUdevResource resource;
  std::memcpy(&resource, found->second.data(), sizeof resource);
  return resource;
}

}  // namespace flyt::server
