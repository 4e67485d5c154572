#include "control/cluster_client/cluster_client.h"

#include <atomic>
#include <chrono>
#include <vector>

#include "control/cluster.grpc.pb.h"
#include "control/grpc/call.h"
#include "control/grpc/channel.h"
#include "control/grpc/keepalive.h"

namespace flyt::cluster {
namespace {

constexpr auto kQuestionTime = std::chrono::seconds(30);
// A node may have to start a server first.
constexpr auto kChangeTime = std::chrono::seconds(150);
// A manager that is gone is noticed by nodes and VMs before anybody waits for them.
constexpr auto kMachineTime = std::chrono::seconds(10);
constexpr auto kOtherTime = std::chrono::seconds(2);
constexpr auto kOtherQuestionTime = std::chrono::seconds(10);
constexpr int kMessageBytesMax = 256 << 20;
constexpr int kReconnectMs = 1000;
constexpr int kAliveMs = 15'000;

class Client final : public ClusterClient {
 public:
  // One of the managers.
  struct Side {
    std::string name;
    std::unique_ptr<v1::Nodes::Stub> nodes;
    std::unique_ptr<v1::Vms::Stub> vms;
    std::unique_ptr<v1::Operators::Stub> people;
  };
  explicit Client(std::vector<Side> sides) : sides_(std::move(sides)) {}

  Result<v1::NodeReply> report(const v1::NodeReport& request) override {
    // A node is lost when it has been silent for long; another manager may hear it.
    return ask<v1::NodeReply>(&Side::nodes, &v1::Nodes::Stub::Report, request,
                              sides_.size() > 1 ? kOtherTime : kMachineTime);
  }
  Result<v1::VirtualGpu> request(const v1::GpuRequest& request) override {
    return ask<v1::VirtualGpu>(&Side::vms, &v1::Vms::Stub::Request, request, kMachineTime);
  }
  Result<v1::VirtualGpu> release(const std::string& vm) override {
    v1::ReleaseGpuRequest request;
    request.set_vm(vm);
    return ask<v1::VirtualGpu>(&Side::vms, &v1::Vms::Stub::Release, request, kMachineTime);
  }
  Status watch_gpu(const std::string& vm,
                   const std::function<bool(const v1::VirtualGpu&)>& take) override {
    v1::WatchGpuRequest request;
    request.set_vm(vm);
    grpc::ClientContext context;
    const std::size_t at = at_;
    const auto reader = sides_[at].vms->Watch(&context, request);
    return read<v1::VirtualGpu>(at, *reader, context, take);
  }
  Result<v1::ClusterDescription> describe() override {
    return question<v1::ClusterDescription>(&Stub::Describe, v1::DescribeClusterRequest());
  }
  Result<v1::ListNodesResponse> nodes(const std::string& node) override {
    v1::ListNodesRequest request;
    request.set_node(node);
    return question<v1::ListNodesResponse>(&Stub::ListNodes, request);
  }
  Result<v1::ListVmsResponse> vms(const std::string& vm) override {
    v1::ListVmsRequest request;
    request.set_vm(vm);
    return question<v1::ListVmsResponse>(&Stub::ListVms, request);
  }
  Result<v1::ListClusterLeasesResponse> leases(const std::string& vm,
                                               const std::string& node) override {
    v1::ListClusterLeasesRequest request;
    request.set_vm(vm);
    request.set_node(node);
    return question<v1::ListClusterLeasesResponse>(&Stub::ListLeases, request);
  }
  Result<v1::ListClusterSessionsResponse> sessions(const std::string& vm,
                                                   const std::string& node) override {
    v1::ListClusterSessionsRequest request;
    request.set_vm(vm);
    request.set_node(node);
    return change<v1::ListClusterSessionsResponse>(&Stub::ListSessions, request);
  }
  Result<v1::Explanation> explain(const std::string& vm) override {
    v1::ExplainRequest request;
    request.set_vm(vm);
    return question<v1::Explanation>(&Stub::Explain, request);
  }
  Result<v1::ListVmsResponse> set_vms(const v1::SetVmsRequest& request) override {
    return change<v1::ListVmsResponse>(&Stub::SetVms, request);
  }
  Result<v1::Vm> remove_vm(const std::string& vm, bool force) override {
    v1::RemoveVmRequest request;
    request.set_vm(vm);
    request.set_force(force);
    return change<v1::Vm>(&Stub::RemoveVm, request);
  }
  Result<v1::Vm> resize(const v1::ResizeVmRequest& request) override {
    return change<v1::Vm>(&Stub::ResizeVm, request);
  }
  Result<v1::Vm> release_vm(const std::string& vm) override {
    v1::ReleaseVmRequest request;
    request.set_vm(vm);
    return change<v1::Vm>(&Stub::ReleaseVm, request);
  }
  Result<v1::Node> set_node(const v1::SetNodeRequest& request) override {
    return change<v1::Node>(&Stub::SetNode, request);
  }
  Result<v1::Node> remove_node(const std::string& node) override {
    v1::RemoveNodeRequest request;
    request.set_node(node);
    return change<v1::Node>(&Stub::RemoveNode, request);
  }
  Result<v1::ClusterHealth> health() override {
    return question<v1::ClusterHealth>(&Stub::Health, v1::ClusterHealthRequest());
  }
  Result<v1::ListAuditResponse> audit(std::uint64_t after) override {
    v1::ListAuditRequest request;
    request.set_after(after);
    return question<v1::ListAuditResponse>(&Stub::ListAudit, request);
  }
  Result<v1::EnrolToken> new_enrol_token(const v1::CreateEnrolTokenRequest& request) override {
    return change<v1::EnrolToken>(&Stub::CreateEnrolToken, request);
  }
  Result<v1::ListEnrolTokensResponse> enrol_tokens() override {
    return question<v1::ListEnrolTokensResponse>(&Stub::ListEnrolTokens,
                                                 v1::ListEnrolTokensRequest());
  }
  Result<v1::EnrolToken> revoke_enrol_token(const std::string& id) override {
    v1::RevokeEnrolTokenRequest request;
    request.set_id(id);
    return change<v1::EnrolToken>(&Stub::RevokeEnrolToken, request);
  }
  Status watch(const std::function<bool()>& take) override {
    grpc::ClientContext context;
    const std::size_t at = at_;
    const auto reader = sides_[at].people->Watch(&context, v1::WatchRequest());
    return read<v1::Change>(at, *reader, context, [&](const v1::Change&) { return take(); });
  }
  Status events(std::uint64_t after, bool follow,
                const std::function<bool(const v1::ClusterEvent&)>& take) override {
    v1::WatchClusterEventsRequest request;
    request.set_after(after);
    request.set_follow(follow);
    grpc::ClientContext context;
    const std::size_t at = at_;
    const auto reader = sides_[at].people->WatchEvents(&context, request);
    return read<v1::ClusterEvent>(at, *reader, context, take);
  }

 private:
  using Stub = v1::Operators::Stub;

  // Whoever does not answer is not asked first the next time.
  Error failed(const grpc::Status& status, std::size_t at) {
    Error error = control::error_of(status, "cluster " + sides_[at].name, "flyt-cluster-manager");
    if (error.code == ErrorCode::kLost) at_.compare_exchange_strong(at, (at + 1) % sides_.size());
    return error;
  }

  // What cannot be reached has done nothing, or what may be done twice. `again`: so may what is
  // late.
  template <class Reply, class Stubs, class Method, class Request>
  Result<Reply> ask(Stubs stubs, Method method, const Request& request,
                    std::chrono::seconds patience, bool again = false) {
    for (std::size_t tries = 1;; ++tries) {
      const std::size_t at = at_;
      Reply reply;
      const grpc::Status status =
          control::call(*(sides_[at].*stubs), method, request, patience, reply);
      if (status.ok()) return reply;
      Error error = failed(status, at);
      const bool unreached = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                             (again && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
      if (!unreached || tries >= sides_.size()) return error;
    }
  }
  template <class Reply, class Method, class Request>
  Result<Reply> question(Method method, const Request& request) {
    return ask<Reply>(&Side::people, method, request,
                      sides_.size() > 1 ? kOtherQuestionTime : kQuestionTime, true);
  }
  template <class Reply, class Method, class Request>
  Result<Reply> change(Method method, const Request& request) {
    return ask<Reply>(&Side::people, method, request, kChangeTime);
  }
  template <class Message, class Reader, class Take>
  Status read(std::size_t at, Reader& reader, grpc::ClientContext& context, Take take) {
    const grpc::Status status = control::read_stream<Message>(reader, context, take);
    return status.ok() ? Status() : Status(failed(status, at));
  }

  const std::vector<Side> sides_;
  std::atomic<std::size_t> at_ = 0;
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') parts.emplace_back();
    if (c != ',') parts.back() += c;
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<ClusterClient>> ClusterClient::connect(const ClusterAddress& address) {
  const control::TlsFiles files{address.cert, address.key, address.ca};
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  control::keep_alive(arguments, {.every_ms = kAliveMs, .answer_ms = kAliveMs});
  std::vector<Client::Side> sides;
  for (const std::string& name : split(address.cluster)) {
    if (Status good = control::check_address(name); !good) return good.error();
    if (!control::is_local(name) && !files.complete()) {
      return Error{ErrorCode::kInvalid,
                   "a cluster at HOST:PORT is asked with a certificate, its key and the"
                   " authority's certificate; on its own machine unix:///PATH needs none"};
    }
    const auto channel = control::open_channel(name, files, control::ServerRole::kCluster,
                                               arguments, address.revoked);
    if (!channel) return channel.error();
    sides.push_back({name, v1::Nodes::NewStub(*channel), v1::Vms::NewStub(*channel),
                     v1::Operators::NewStub(*channel)});
  }
  return std::unique_ptr<ClusterClient>(std::make_unique<Client>(std::move(sides)));
}

}  // namespace flyt::cluster
