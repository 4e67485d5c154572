#include "server/graphs/user_object.h"

#include "server/graphs/graphs.h"

namespace flyt::server {

bool UserObject::held(const Graphs& graphs) {
  std::erase_if(counts_, [&graphs](const auto& item) {
    return item.first != kProgram && graphs.graph(item.first) == nullptr;
  });
  return !counts_.empty();
}

bool UserObject::has(std::uint64_t count, std::uint64_t graph) const {
  const auto found = counts_.find(graph);
  return found != counts_.end() && found->second >= count;
}

void UserObject::remove(std::uint64_t count, std::uint64_t graph) {
  const auto found = counts_.find(graph);
  if (found == counts_.end()) return;
  found->second -= count;
  if (found->second == 0) counts_.erase(found);
}

void UserObject::copy(std::uint64_t clone, std::uint64_t graph) {
  const auto found = counts_.find(graph);
  if (found != counts_.end()) counts_[clone] = found->second;
}

}  // namespace flyt::server
