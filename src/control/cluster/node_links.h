// NodeLinks: connections to the nodes that a cluster manager asks.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/annotations.h"
#include "control/cli/node/node_client.h"
#include "control/cluster/config.h"
#include "control/cluster/node_calls.h"
#include "control/pki/revocations.h"

namespace flyt::cluster {

class NodeLinks final : public NodeCalls {
 public:
  // With the manager's own certificate.
  explicit NodeLinks(const Config& config)
      : config_(config), revoked_(pki::Revocations::of(config.crl, config.ca)) {}

  Result<node::v1::Lease> create(const std::string& address,
                                 const node::v1::CreateLeaseRequest& request) override;
  Result<node::v1::Lease> resize(const std::string& address,
                                 const node::v1::ResizeLeaseRequest& request) override;
  Result<node::v1::Lease> release(const std::string& address,
                                  const node::v1::ReleaseLeaseRequest& request) override;
  Result<node::v1::Lease> lease(const std::string& address, const std::string& lease) override;
  Result<node::v1::Token> token(const std::string& address, const std::string& lease,
                                std::uint32_t seconds) override;
  Result<node::v1::ListSessionsResponse> sessions(const std::string& address) override;

 private:
  Result<std::shared_ptr<cli::NodeClient>> link(const std::string& address);

  const Config& config_;
  const std::shared_ptr<pki::Revocations> revoked_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<cli::NodeClient>> links_ GUARDED_BY(mutex_);
};

}  // namespace flyt::cluster
