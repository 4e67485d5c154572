#include "control/cli/node/node_client.h"

#include <chrono>

#include "control/grpc/call.h"
#include "control/grpc/channel.h"
#include "control/grpc/keepalive.h"
#include "control/node.grpc.pb.h"

namespace flyt::cli {
namespace {

namespace v1 = node::v1;

constexpr auto kQuestionTime = std::chrono::seconds(30);
// A new server may have to start a driver first.
constexpr auto kChangeTime = std::chrono::seconds(120);

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
  Result<v1::Lease> release(const v1::ReleaseLeaseRequest& request) override {
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
  Result<v1::ForgetLeadersResponse> forget_leaders() override {
    return ask<v1::ForgetLeadersResponse>(&v1::Node::Stub::ForgetLeaders,
                                          v1::ForgetLeadersRequest());
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
    const grpc::Status status = control::read_stream<v1::Event>(*reader, context, take);
    return status.ok() ? Status() : Status(error_of(status));
  }

 private:
  Error error_of(const grpc::Status& status) const {
    return control::error_of(status, "node " + name_, "flyt-node-manager");
  }

  template <class Reply, class Method, class Request>
  Result<Reply> ask(Method method, const Request& request,
                    std::chrono::seconds patience = kQuestionTime) {
    Reply reply;
    const grpc::Status status = control::call(*stub_, method, request, patience, reply);
    if (status.ok()) return reply;
    return error_of(status);
  }

  const std::string name_;
  const std::unique_ptr<v1::Node::Stub> stub_;
};

}  // namespace

Result<std::unique_ptr<NodeClient>> NodeClient::connect(const NodeAddress& address) {
  if (Status good = control::check_address(address.node); !good) return good.error();
  const control::TlsFiles files{address.cert, address.key, address.ca};
  if (!control::is_local(address.node) && !files.complete()) {
    return Error{ErrorCode::kInvalid,
                 "a node at HOST:PORT is asked with --cert, --key and --ca; on its own machine"
                 " --node unix:///run/flyt/node.sock needs none"};
  }
  grpc::ChannelArguments arguments;
  control::keep_alive(arguments);
  const auto channel = control::open_channel(address.node, files, control::ServerRole::kNode,
                                             arguments, address.revoked);
  if (!channel) return channel.error();
  return std::unique_ptr<NodeClient>(
      std::make_unique<Client>(address.node, v1::Node::NewStub(*channel)));
}

}  // namespace flyt::cli
