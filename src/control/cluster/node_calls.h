// NodeCalls: what a cluster manager asks of nodes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "control/node.pb.h"

namespace flyt::cluster {

// `address` is what the node reported. Errors are those of the node: kInvalid, kLimit,
// kUnsupported: refused, and nothing has changed; kDenied: the name is taken; kNotFound: no such
// lease; anything else: nobody knows what has become of it. Safe from any thread.
class NodeCalls {
 public:
  virtual ~NodeCalls() = default;
  virtual Result<node::v1::Lease> create(const std::string& address,
                                         const node::v1::CreateLeaseRequest& request) = 0;
  virtual Result<node::v1::Lease> resize(const std::string& address,
                                         const node::v1::ResizeLeaseRequest& request) = 0;
  virtual Result<node::v1::Lease> release(const std::string& address,
                                          const node::v1::ReleaseLeaseRequest& request) = 0;
  virtual Result<node::v1::Lease> lease(const std::string& address, const std::string& lease) = 0;
  virtual Result<node::v1::Token> token(const std::string& address, const std::string& lease,
                                        std::uint32_t seconds) = 0;
  virtual Result<node::v1::ListSessionsResponse> sessions(const std::string& address) = 0;
};

}  // namespace flyt::cluster
