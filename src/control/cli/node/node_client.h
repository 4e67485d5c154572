// NodeClient: asks a node manager.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "control/node.pb.h"
#include "control/pki/revocations.h"

namespace flyt::cli {

struct NodeAddress {
  std::string node;  // unix:///PATH or HOST:PORT
  std::string cert;  // Files; TCP only.
  std::string key;
  std::string ca;
  std::shared_ptr<pki::Revocations> revoked = nullptr;  // Nodes that are not asked; null: none.
};

// Errors say which node, and what it said: kInvalid: the request is bad; kLimit: there is no room;
// kNotFound: no such lease; kUnsupported: not in this state; kDenied: not allowed, or taken
// already; kLost: the node does not answer; kSystem: it failed there.
class NodeClient {
 public:
  static Result<std::unique_ptr<NodeClient>> connect(const NodeAddress& address);
  virtual ~NodeClient() = default;

  virtual Result<node::v1::NodeDescription> describe() = 0;
  virtual Result<node::v1::ListLeasesResponse> leases() = 0;
  virtual Result<node::v1::Lease> lease(const std::string& name) = 0;
  virtual Result<node::v1::Lease> create(const node::v1::CreateLeaseRequest& request) = 0;
  virtual Result<node::v1::Lease> resize(const node::v1::ResizeLeaseRequest& request) = 0;
  virtual Result<node::v1::ListLeasesResponse> defragment() = 0;
  virtual Result<node::v1::Lease> release(const node::v1::ReleaseLeaseRequest& request) = 0;
  virtual Result<node::v1::ListSessionsResponse> sessions(const std::string& lease) = 0;
  virtual Result<node::v1::Token> token(const std::string& lease, std::uint32_t seconds) = 0;
  virtual Result<node::v1::DrainResponse> drain(bool on) = 0;
  virtual Result<node::v1::ForgetLeadersResponse> forget_leaders() = 0;
  virtual Result<node::v1::HealthStatus> health() = 0;
  // Until the end of what is kept or, with `follow`, until the node goes away or `take` is false.
  virtual Status events(std::uint64_t after, bool follow,
                        const std::function<bool(const node::v1::Event&)>& take) = 0;
};

}  // namespace flyt::cli
