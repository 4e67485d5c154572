#include "control/cluster/node_links.h"

#include "control/cluster/records.h"

namespace flyt::cluster {
namespace {

constexpr std::size_t kLinksMax = 20000;

// What is kept of a node's leases is bounded, whatever it answers; whether there is one is found
// out.
Result<node::v1::Lease> bounded(Result<node::v1::Lease> lease) {
  if (!lease || lease->ByteSizeLong() <= kReportLeaseBytesMax) return lease;
  return Error{ErrorCode::kSystem, "it tells more of a lease than there can be"};
}

}  // namespace

Result<std::shared_ptr<cli::NodeClient>> NodeLinks::link(const std::string& address) {
  const Lock lock(mutex_);
  if (const auto known = links_.find(address); known != links_.end()) return known->second;
  auto client =
      cli::NodeClient::connect({address, config_.cert, config_.key, config_.ca, revoked_});
  if (!client) return std::move(client).error();
  // Addresses that are used no more.
  if (links_.size() >= kLinksMax) links_.clear();
  std::shared_ptr<cli::NodeClient> shared = std::move(*client);
  links_.emplace(address, shared);
  return shared;
}

Result<node::v1::Lease> NodeLinks::create(const std::string& address,
                                          const node::v1::CreateLeaseRequest& request) {
  const auto node = link(address);
  if (!node) return node.error();
  return bounded((*node)->create(request));
}

Result<node::v1::Lease> NodeLinks::resize(const std::string& address,
                                          const node::v1::ResizeLeaseRequest& request) {
  const auto node = link(address);
  if (!node) return node.error();
  return bounded((*node)->resize(request));
}

Result<node::v1::Lease> NodeLinks::release(const std::string& address,
                                           const node::v1::ReleaseLeaseRequest& request) {
  const auto node = link(address);
  if (!node) return node.error();
  return bounded((*node)->release(request));
}

Result<node::v1::Lease> NodeLinks::lease(const std::string& address, const std::string& lease) {
  const auto node = link(address);
  if (!node) return node.error();
  return bounded((*node)->lease(lease));
}

Result<node::v1::Token> NodeLinks::token(const std::string& address, const std::string& lease,
                                         std::uint32_t seconds) {
  const auto node = link(address);
  if (!node) return node.error();
  return (*node)->token(lease, seconds);
}

Result<node::v1::ListSessionsResponse> NodeLinks::sessions(const std::string& address) {
  const auto node = link(address);
  if (!node) return node.error();
  return (*node)->sessions("");
}

}  // namespace flyt::cluster
