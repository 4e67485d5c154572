// ClusterClient: asks a cluster manager: for people, for nodes and for VMs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "control/cluster.pb.h"
#include "control/pki/revocations.h"

namespace flyt::cluster {

struct ClusterAddress {
  // unix:///PATH or HOST:PORT of its manager, or of several, with commas between them.
  std::string cluster;
  std::string cert;  // Files; TCP only.
  std::string key;
  std::string ca;
  std::shared_ptr<pki::Revocations> revoked = nullptr;  // Managers not asked; null: none.
};

// Asks one manager, and the next one where that cannot be reached or none decides.
// Errors say what the manager said: kInvalid: the request is bad; kLimit: there is no room;
// kNotFound: no such thing; kUnsupported: not in this state; kDenied: not allowed, or taken
// already; kLost: the manager does not answer; kSystem: it failed there. Safe from any thread.
class ClusterClient {
 public:
  static Result<std::unique_ptr<ClusterClient>> connect(const ClusterAddress& address);
  virtual ~ClusterClient() = default;

  virtual Result<v1::NodeReply> report(const v1::NodeReport& request) = 0;

  virtual Result<v1::VirtualGpu> request(const v1::GpuRequest& request) = 0;
  virtual Result<v1::VirtualGpu> release(const std::string& vm) = 0;
  // Now and after each change, until `take` is false. Ends with an error when the manager goes
  // away.
  virtual Status watch_gpu(const std::string& vm,
                           const std::function<bool(const v1::VirtualGpu&)>& take) = 0;

  virtual Result<v1::ClusterDescription> describe() = 0;
  virtual Result<v1::ListNodesResponse> nodes(const std::string& node) = 0;
  virtual Result<v1::ListVmsResponse> vms(const std::string& vm) = 0;
  virtual Result<v1::ListClusterLeasesResponse> leases(const std::string& vm,
                                                       const std::string& node) = 0;
  virtual Result<v1::ListClusterSessionsResponse> sessions(const std::string& vm,
                                                           const std::string& node) = 0;
  virtual Result<v1::Explanation> explain(const std::string& vm) = 0;
  virtual Result<v1::ListVmsResponse> set_vms(const v1::SetVmsRequest& request) = 0;
  virtual Result<v1::Vm> remove_vm(const std::string& vm, bool force) = 0;
  virtual Result<v1::Vm> resize(const v1::ResizeVmRequest& request) = 0;
  virtual Result<v1::Vm> release_vm(const std::string& vm) = 0;
  virtual Result<v1::Node> set_node(const v1::SetNodeRequest& request) = 0;
  virtual Result<v1::Node> remove_node(const std::string& node) = 0;
  virtual Result<v1::ClusterHealth> health() = 0;
  virtual Result<v1::ListAuditResponse> audit(std::uint64_t after) = 0;
  virtual Result<v1::EnrolToken> new_enrol_token(const v1::CreateEnrolTokenRequest& request) = 0;
  virtual Result<v1::ListEnrolTokensResponse> enrol_tokens() = 0;
  virtual Result<v1::EnrolToken> revoke_enrol_token(const std::string& id) = 0;
  // After each change, until `take` is false.
  virtual Status watch(const std::function<bool()>& take) = 0;
  virtual Status events(std::uint64_t after, bool follow,
                        const std::function<bool(const v1::ClusterEvent&)>& take) = 0;
};

}  // namespace flyt::cluster
