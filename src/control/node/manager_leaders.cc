// Which cluster managers may change leases: of each cluster the newest that has asked.
#include <algorithm>

#include "control/node/manager.h"

namespace flyt::node {
namespace {

constexpr std::size_t kClustersMax = 16;
constexpr std::size_t kClusterBytesMax = 64;

bool is_cluster(const std::string& name) {
  return !name.empty() && name.size() <= kClusterBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

Status Manager::follow(const std::string& cluster, std::uint64_t epoch) {
  if (cluster.empty() && epoch == 0) return {};
  if (!is_cluster(cluster) || epoch == 0 || epoch > INT64_MAX) {
    return Error{ErrorCode::kInvalid, "a cluster manager that decides has a cluster and an epoch"};
  }
  const Lock lock(mutex_);
  const auto known = leaders_.find(cluster);
  if (known != leaders_.end() && epoch == known->second) return {};
  if (known != leaders_.end() && epoch < known->second) {
    deposed_ = "a cluster manager asked this node that does not decide any more (epoch " +
               std::to_string(epoch) + " of cluster " + cluster + ", the newest is " +
               std::to_string(known->second) +
               "). If it does, after an old state was put back: flytctl --node ADDR forget-leaders";
    deposed_at_ = system_clock().now();
    log_.warn("refused", {{"reason", deposed_}});
    return Error{ErrorCode::kUnsupported, deposed_};
  }
  if (known == leaders_.end() && leaders_.size() >= kClustersMax) {
    return Error{ErrorCode::kLimit, "cluster managers of " + std::to_string(kClustersMax) +
                                        " clusters have asked this node; if they are gone:"
                                        " flytctl --node ADDR forget-leaders"};
  }
  // On disk before anything is done for it: also after a restart the one before is refused.
  const Event led =
      event("leader", nullptr, "epoch " + std::to_string(epoch) + " of cluster " + cluster);
  if (Status status = checked(state_->set_leader(cluster, epoch, led)); !status) return status;
  leaders_[cluster] = epoch;
  publish(led);
  return {};
}

Result<std::size_t> Manager::forget_leaders() {
  const Lock lock(mutex_);
  const std::size_t count = leaders_.size();
  const Event forgotten = event("leaders-forgotten", nullptr, "any cluster manager is believed");
  if (Status status = checked(state_->forget_leaders(forgotten)); !status) return status.error();
  leaders_.clear();
  deposed_.clear();
  publish(forgotten);
  return count;
}

}  // namespace flyt::node
