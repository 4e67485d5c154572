#include "control/cluster_client/cluster_client.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <chrono>

#include "base/wall_clock.h"
#include "control/cluster.grpc.pb.h"
#include "control/settings/settings.h"

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
constexpr std::string_view kUnix = "unix://";

ErrorCode code_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
      return ErrorCode::kInvalid;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::kLimit;
    case grpc::StatusCode::NOT_FOUND:
      return ErrorCode::kNotFound;
    case grpc::StatusCode::FAILED_PRECONDITION:
      return ErrorCode::kUnsupported;
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::kDenied;
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
      return ErrorCode::kLost;
    default:
      return ErrorCode::kSystem;
  }
}

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
    const ErrorCode code = code_of(status.error_code());
    if (code != ErrorCode::kLost || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return {code, status.error_message()};
    }
    return {code, "cluster " + name_ + ": " + status.error_message() +
                      "; does flyt-cluster-manager run there, and is this user or certificate"
                      " allowed?"};
  }

  template <class Reply, class Service, class Method, class Request>
  Result<Reply> ask(Service& service, Method method, const Request& request,
                    std::chrono::seconds patience) {
    grpc::ClientContext context;
    const std::int64_t end = unix_milliseconds() + patience.count() * 1000;
    context.set_deadline(gpr_time_from_millis(end, GPR_CLOCK_REALTIME));
    Reply reply;
    const grpc::Status status = (service.*method)(&context, request, &reply);
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
    Message message;
    while (reader.Read(&message)) {
      if (take(message)) continue;
      context.TryCancel();
      static_cast<void>(reader.Finish());
      return {};
    }
    const grpc::Status status = reader.Finish();
    return status.ok() ? Status() : Status(error_of(status));
  }

  const std::string name_;
  const std::unique_ptr<v1::Nodes::Stub> nodes_;
  const std::unique_ptr<v1::Vms::Stub> vms_;
  const std::unique_ptr<Stub> people_;
};

Result<std::shared_ptr<grpc::ChannelCredentials>> credentials_of(const ClusterAddress& address) {
  if (address.cluster.starts_with(kUnix)) return grpc::InsecureChannelCredentials();
  if (address.cert.empty() || address.key.empty() || address.ca.empty()) {
    return Error{ErrorCode::kInvalid,
                 "a cluster at HOST:PORT is asked with a certificate, its key and the authority's"
                 " certificate; on its own machine unix:///PATH needs none"};
  }
  const auto cert = control::read_file(address.cert);
  if (!cert) return cert.error();
  const auto key = control::read_file(address.key);
  if (!key) return key.error();
  const auto ca = control::read_file(address.ca);
  if (!ca) return ca.error();
  return grpc::SslCredentials({*ca, *key, *cert});
}

}  // namespace

Result<std::unique_ptr<ClusterClient>> ClusterClient::connect(const ClusterAddress& address) {
  // gRPC's own words would stand beside ours; and the C library's resolver is enough for one name.
  ::setenv("GRPC_VERBOSITY", "NONE", 0);
  ::setenv("GRPC_DNS_RESOLVER", "native", 0);
  const auto credentials = credentials_of(address);
  if (!credentials) return credentials.error();
  const bool local = address.cluster.starts_with(kUnix);
  // A proxy of the environment is for the web.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  // Who watches a manager that is cut off shall notice.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kAliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const std::string target =
      local ? "unix:" + address.cluster.substr(kUnix.size()) : "dns:///" + address.cluster;
  auto channel = grpc::CreateCustomChannel(target, *credentials, arguments);
  return std::unique_ptr<ClusterClient>(std::make_unique<Client>(address.cluster, channel));
}

}  // namespace flyt::cluster
