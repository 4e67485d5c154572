#include "control/cli/node/node_client.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>

#include "base/wall_clock.h"
#include "control/node.grpc.pb.h"

namespace flyt::cli {
namespace {

namespace v1 = node::v1;

constexpr auto kQuestionTime = std::chrono::seconds(30);
// A new server may have to start a driver first.
constexpr auto kChangeTime = std::chrono::seconds(120);
constexpr std::string_view kUnix = "unix://";

Result<std::string> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error("cannot read " + path, errno);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

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

class Client final : public NodeClient {
 public:
  Client(std::string name, std::unique_ptr<v1::Node::Stub> stub)
      : name_(std::move(name)), stub_(std::move(stub)) {}

  Result<v1::NodeDescription> describe() override {
    return ask<v1::NodeDescription>(&v1::Node::Stub::Describe, v1::DescribeRequest());
  }
  Result<v1::ListLeasesResponse> leases() override {
    return ask<v1::ListLeasesResponse>(&v1::Node::Stub::ListLeases, v1::ListLeasesRequest());
  }
  Result<v1::Lease> lease(const std::string& name) override {
    v1::GetLeaseRequest request;
    request.set_lease(name);
    return ask<v1::Lease>(&v1::Node::Stub::GetLease, request);
  }
  Result<v1::Lease> create(const v1::CreateLeaseRequest& request) override {
    return ask<v1::Lease>(&v1::Node::Stub::CreateLease, request, kChangeTime);
  }
  Result<v1::Lease> resize(const v1::ResizeLeaseRequest& request) override {
    return ask<v1::Lease>(&v1::Node::Stub::ResizeLease, request, kChangeTime);
  }
  Result<v1::ListLeasesResponse> defragment() override {
    return ask<v1::ListLeasesResponse>(&v1::Node::Stub::Defragment, v1::DefragmentRequest(),
                                       kChangeTime);
  }
  Result<v1::Lease> release(const std::string& name) override {
    v1::ReleaseLeaseRequest request;
    request.set_lease(name);
    return ask<v1::Lease>(&v1::Node::Stub::ReleaseLease, request, kChangeTime);
  }
  Result<v1::ListSessionsResponse> sessions(const std::string& lease) override {
    v1::ListSessionsRequest request;
    request.set_lease(lease);
    return ask<v1::ListSessionsResponse>(&v1::Node::Stub::ListSessions, request);
  }
  Result<v1::Token> token(const std::string& lease, std::uint32_t seconds) override {
    v1::IssueTokenRequest request;
    request.set_lease(lease);
    request.set_seconds(seconds);
    return ask<v1::Token>(&v1::Node::Stub::IssueToken, request);
  }
  Result<v1::DrainResponse> drain(bool on) override {
    v1::DrainRequest request;
    request.set_drain(on);
    return ask<v1::DrainResponse>(&v1::Node::Stub::Drain, request);
  }
  Result<v1::HealthStatus> health() override {
    return ask<v1::HealthStatus>(&v1::Node::Stub::Health, v1::HealthRequest());
  }
  Status events(std::uint64_t after, bool follow,
                const std::function<bool(const v1::Event&)>& take) override {
    v1::WatchEventsRequest request;
    request.set_after(after);
    request.set_follow(follow);
    grpc::ClientContext context;
    const auto reader = stub_->WatchEvents(&context, request);
    v1::Event event;
    while (reader->Read(&event)) {
      if (take(event)) continue;
      context.TryCancel();
      static_cast<void>(reader->Finish());
      return {};
    }
    const grpc::Status status = reader->Finish();
    return status.ok() ? Status() : Status(error_of(status));
  }

 private:
  Error error_of(const grpc::Status& status) const {
    const ErrorCode code = code_of(status.error_code());
    if (code != ErrorCode::kLost || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return {code, status.error_message()};
    }
    // The node's own words come without gRPC's about addresses.
    return {code, "node " + name_ + ": " + status.error_message() +
                      "; does flyt-node-manager run there, and is this user or certificate"
                      " allowed?"};
  }

  template <class Reply, class Method, class Request>
  Result<Reply> ask(Method method, const Request& request,
                    std::chrono::seconds patience = kQuestionTime) {
    grpc::ClientContext context;
    const std::int64_t end = unix_milliseconds() + patience.count() * 1000;
    context.set_deadline(gpr_time_from_millis(end, GPR_CLOCK_REALTIME));
    Reply reply;
    const grpc::Status status = ((*stub_).*method)(&context, request, &reply);
    if (status.ok()) return reply;
    return error_of(status);
  }

  const std::string name_;
  const std::unique_ptr<v1::Node::Stub> stub_;
};

Result<std::shared_ptr<grpc::ChannelCredentials>> credentials_of(const NodeAddress& address) {
  if (address.node.starts_with(kUnix)) return grpc::InsecureChannelCredentials();
  if (address.cert.empty() || address.key.empty() || address.ca.empty()) {
    return Error{ErrorCode::kInvalid,
                 "a node at HOST:PORT is asked with --cert, --key and --ca; on its own machine"
                 " --node unix:///run/flyt/node.sock needs none"};
  }
  const auto cert = contents(address.cert);
  if (!cert) return cert.error();
  const auto key = contents(address.key);
  if (!key) return key.error();
  const auto ca = contents(address.ca);
  if (!ca) return ca.error();
  return grpc::SslCredentials({*ca, *key, *cert});
}

}  // namespace

Result<std::unique_ptr<NodeClient>> NodeClient::connect(const NodeAddress& address) {
  // gRPC's own words would stand beside ours; and the C library's resolver is enough for one name.
  ::setenv("GRPC_VERBOSITY", "NONE", 0);
  ::setenv("GRPC_DNS_RESOLVER", "native", 0);
  const auto credentials = credentials_of(address);
  if (!credentials) return credentials.error();
  const bool local = address.node.starts_with(kUnix);
  // A proxy of the environment is for the web.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const std::string target =
      local ? "unix:" + address.node.substr(kUnix.size()) : "dns:///" + address.node;
  auto channel = grpc::CreateCustomChannel(target, *credentials, arguments);
  return std::unique_ptr<NodeClient>(
      std::make_unique<Client>(address.node, v1::Node::NewStub(channel)));
}

}  // namespace flyt::cli
