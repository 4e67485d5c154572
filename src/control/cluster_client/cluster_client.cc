#include "control/cluster_client/cluster_client.h"

#include <chrono>

#include "control/cluster.grpc.pb.h"
#include "control/grpc/call.h"
#include "control/grpc/channel.h"

namespace flyt::cluster {
namespace {

constexpr auto kQuestionTime = std::chrono::seconds(30);
// A node may have to start a server first.
constexpr auto kChangeTime = std::chrono::seconds(150);
// A manager that is gone is noticed by nodes and VMs before anybody waits for them.
constexpr auto kMachineTime = std::chrono::seconds(10);
constexpr int kMessageBytesMax = 256 << 20;
constexpr int kReconnectMs = 1000;
constexpr int kAliveMs = 15'000;

class Client final : public ClusterClient {
 public:
  Client(std::string name, const std::shared_ptr<grpc::Channel>& channel)
      : name_(std::move(name)),
        nodes_(v1::Nodes::NewStub(channel)),
        vms_(v1::Vms::NewStub(channel)),
        people_(v1::Operators::NewStub(channel)) {}

  Result<v1::NodeReply> report(const v1::NodeReport& request) override {
    return ask<v1::NodeReply>(*nodes_, &v1::Nodes::Stub::Report, request, kMachineTime);
  }
  Result<v1::VirtualGpu> request(const v1::GpuRequest& request) override {
    return ask<v1::VirtualGpu>(*vms_, &v1::Vms::Stub::Request, request, kMachineTime);
  }
  Result<v1::VirtualGpu> release(const std::string& vm) override {
    v1::ReleaseGpuRequest request;
    request.set_vm(vm);
    return ask<v1::VirtualGpu>(*vms_, &v1::Vms::Stub::Release, request, kMachineTime);
  }
  Status watch_gpu(const std::string& vm,
                   const std::function<bool(const v1::VirtualGpu&)>& take) override {
    v1::WatchGpuRequest request;
    request.set_vm(vm);
    grpc::ClientContext context;
    const auto reader = vms_->Watch(&context, request);
    return read<v1::VirtualGpu>(*reader, context, take);
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
  Status watch(const std::function<bool()>& take) override {
    grpc::ClientContext context;
    const auto reader = people_->Watch(&context, v1::WatchRequest());
    return read<v1::Change>(*reader, context, [&](const v1::Change&) { return take(); });
  }
  Status events(std::uint64_t after, bool follow,
                const std::function<bool(const v1::ClusterEvent&)>& take) override {
    v1::WatchClusterEventsRequest request;
    request.set_after(after);
    request.set_follow(follow);
    grpc::ClientContext context;
    const auto reader = people_->WatchEvents(&context, request);
    return read<v1::ClusterEvent>(*reader, context, take);
  }

 private:
  using Stub = v1::Operators::Stub;

  Error error_of(const grpc::Status& status) const {
    return control::error_of(status, "cluster " + name_, "flyt-cluster-manager");
  }

  template <class Reply, class Service, class Method, class Request>
  Result<Reply> ask(Service& service, Method method, const Request& request,
                    std::chrono::seconds patience) {
    Reply reply;
    const grpc::Status status = control::call(service, method, request, patience, reply);
    if (status.ok()) return reply;
    return error_of(status);
  }
  template <class Reply, class Method, class Request>
  Result<Reply> question(Method method, const Request& request) {
    return ask<Reply>(*people_, method, request, kQuestionTime);
  }
  template <class Reply, class Method, class Request>
  Result<Reply> change(Method method, const Request& request) {
    return ask<Reply>(*people_, method, request, kChangeTime);
  }
  template <class Message, class Reader, class Take>
  Status read(Reader& reader, grpc::ClientContext& context, Take take) const {
    const grpc::Status status = control::read_stream<Message>(reader, context, take);
    return status.ok() ? Status() : Status(error_of(status));
  }

  const std::string name_;
  const std::unique_ptr<v1::Nodes::Stub> nodes_;
  const std::unique_ptr<v1::Vms::Stub> vms_;
  const std::unique_ptr<Stub> people_;
};

}  // namespace

Result<std::unique_ptr<ClusterClient>> ClusterClient::connect(const ClusterAddress& address) {
  const control::TlsFiles files{address.cert, address.key, address.ca};
  if (!control::is_local(address.cluster) && !files.complete()) {
    return Error{ErrorCode::kInvalid,
                 "a cluster at HOST:PORT is asked with a certificate, its key and the authority's"
                 " certificate; on its own machine unix:///PATH needs none"};
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  // Who watches a manager that is cut off shall notice.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kAliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const auto channel = control::open_channel(address.cluster, files, arguments);
  if (!channel) return channel.error();
  return std::unique_ptr<ClusterClient>(std::make_unique<Client>(address.cluster, *channel));
}

}  // namespace flyt::cluster
