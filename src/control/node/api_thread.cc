#include "control/node/api_thread.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <atomic>

#include "base/log_limit.h"
#include "base/text.h"
#include "control/daemon/door_thread.h"
#include "control/daemon/serving.h"
#include "control/grpc/credentials.h"
#include "control/grpc/keepalive.h"
#include "control/grpc/status.h"
#include "control/grpc/watcher.h"
#include "control/node.grpc.pb.h"
#include "control/node/messages.h"
#include "control/pki/certificate.h"
#include "control/pki/revocations.h"

namespace flyt::node {
namespace {

constexpr std::size_t kProblemBytesMax = 1024;
constexpr int kThreadsMax = 64;
constexpr int kWatchersMax = 32;
constexpr int kMessageBytesMax = 1 << 20;
// A message's size is looked at when all of it is here.
constexpr std::size_t kMemoryBytesMax = 64 << 20;
constexpr int kWatchStepMs = 500;
constexpr auto kShutdownTime = std::chrono::seconds(1);

template <class Value, class Message>
grpc::Status answer(const Result<Value>& value, Message* message) {
  if (!value) return control::status_of(value.error());
  *message = message_of(*value);
  return grpc::Status::OK;
}

class Service final : public v1::Node::Service {
 public:
  Service(Manager& manager, std::string_view version) : manager_(manager), version_(version) {}

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                        v1::NodeDescription* reply) override {
    *reply = message_of(manager_.describe(), version_);
    return grpc::Status::OK;
  }
  grpc::Status ListLeases(grpc::ServerContext*, const v1::ListLeasesRequest*,
                          v1::ListLeasesResponse* reply) override {
    for (const LeaseView& view : manager_.leases()) *reply->add_leases() = message_of(view);
    return grpc::Status::OK;
  }
  grpc::Status GetLease(grpc::ServerContext*, const v1::GetLeaseRequest* request,
                        v1::Lease* reply) override {
    return answer(manager_.lease(request->lease()), reply);
  }
  grpc::Status CreateLease(grpc::ServerContext*, const v1::CreateLeaseRequest* request,
                           v1::Lease* reply) override {
    const auto wanted = request_of(*request);
    if (!wanted) return control::status_of(wanted.error());
    if (Status status = follow(*request); !status) return control::status_of(status.error());
    return answer(manager_.create(*wanted), reply);
  }
  grpc::Status ResizeLease(grpc::ServerContext*, const v1::ResizeLeaseRequest* request,
                           v1::Lease* reply) override {
    if (Status status = follow(*request); !status) return control::status_of(status.error());
    return answer(manager_.resize(request->lease(), request_of(*request)), reply);
  }
  grpc::Status Defragment(grpc::ServerContext*, const v1::DefragmentRequest*,
                          v1::ListLeasesResponse* reply) override {
    for (const LeaseView& view : manager_.defragment()) *reply->add_leases() = message_of(view);
    return grpc::Status::OK;
  }
  grpc::Status ReleaseLease(grpc::ServerContext*, const v1::ReleaseLeaseRequest* request,
                            v1::Lease* reply) override {
    if (Status status = follow(*request); !status) return control::status_of(status.error());
    return answer(manager_.release(request->lease()), reply);
  }
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* reply) override {
    const auto sessions = manager_.sessions(request->lease());
    if (!sessions) return control::status_of(sessions.error());
    for (const SessionView& view : *sessions) *reply->add_sessions() = message_of(view);
    return grpc::Status::OK;
  }
  grpc::Status IssueToken(grpc::ServerContext*, const v1::IssueTokenRequest* request,
                          v1::Token* reply) override {
    return answer(manager_.new_token(request->lease(), request->seconds()), reply);
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* reply) override {
    const auto leases = manager_.drain(request->drain());
    if (!leases) return control::status_of(leases.error());
    reply->set_draining(request->drain());
    reply->set_leases(static_cast<std::uint32_t>(*leases));
    return grpc::Status::OK;
  }
  grpc::Status ForgetLeaders(grpc::ServerContext*, const v1::ForgetLeadersRequest*,
                             v1::ForgetLeadersResponse* reply) override {
    const auto count = manager_.forget_leaders();
    if (!count) return control::status_of(count.error());
    reply->set_clusters(static_cast<std::uint32_t>(*count));
    return grpc::Status::OK;
  }
  grpc::Status Health(grpc::ServerContext*, const v1::HealthRequest*,
                      v1::HealthStatus* reply) override {
    for (const std::string& problem : manager_.concerns()) {
      reply->add_problems(plain_text(problem, kProblemBytesMax));
    }
    reply->set_healthy(reply->problems_size() == 0);
    return grpc::Status::OK;
  }
  grpc::Status WatchEvents(grpc::ServerContext* context, const v1::WatchEventsRequest* request,
                           grpc::ServerWriter<v1::Event>* out) override {
    const control::Watcher watcher(watchers_, kWatchersMax);
    if (!watcher.status().ok()) return watcher.status();
    EventLog& events = manager_.events();
    std::uint64_t last = request->after();
    while (!context->IsCancelled()) {
      const auto batch = events.after(last, request->follow() ? kWatchStepMs : 0);
      for (const Event& event : batch) {
        if (!out->Write(message_of(event))) return grpc::Status::OK;
        last = event.number;
      }
      if (batch.empty() && (!request->follow() || events.closed())) break;
    }
    return grpc::Status::OK;
  }

 private:
  template <class Request>
  Status follow(const Request& request) {
    return manager_.follow(request.leader().cluster(), request.leader().epoch());
  }

  Manager& manager_;
  const std::string version_;
  std::atomic<int> watchers_{0};
};

// Those that an authority of a cluster has signed for something else than leading nodes are
// refused: VMs' above all.
class Roles final : public grpc::AuthMetadataProcessor {
 public:
  Roles(const Config& config, const Log& log) : log_(log), revocations_(config.crl, config.ca) {}

  Status check() { return revocations_.check(); }

  grpc::Status Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto pem = context->FindPropertyValues("x509_pem_cert");
    const auto facts = pem.empty() ? Result<pki::CertificateFacts>(Error{})
                                   : pki::facts_of({pem.front().data(), pem.front().size()});
    const bool leads =
        facts && (facts->role.empty() || facts->role == "admin" || facts->role == "cluster");
    if (!leads) {
      return refuse(facts ? facts->name : "",
                    "a certificate of the role admin is needed, or one without a role");
    }
    // For each call, also on connections that are open.
    if (Status status = revocations_.admit(*facts); !status) {
      return refuse(facts->name, status.error().message);
    }
    return grpc::Status::OK;
  }

 private:
  grpc::Status refuse(const std::string& name, const std::string& why) const {
    refusals_.warn("refused", {{"name", name}, {"reason", why}});
    return {grpc::StatusCode::PERMISSION_DENIED, why};
  }

  const Log log_;
  // A VM may ask as often as it likes.
  mutable LogLimit refusal_lines_;
  const LimitedLog refusals_{log_, refusal_lines_};
  pki::Revocations revocations_;
};

class Api final : public ApiThread {
 public:
  Api(Manager& manager, const Log& log, std::string_view version)
      : log_(log), service_(manager, version) {}
  ~Api() override {
    door_.reset();
    if (server_) server_->Shutdown(control::time_in(kShutdownTime));
  }

  Status start(const Config& config) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(kThreadsMax);
    quota.Resize(kMemoryBytesMax);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    control::keep_alive(builder);
    builder.RegisterService(&service_);
    int port = 0;
    if (!config.api_tcp.empty()) {
      const auto credentials = control::server_credentials({config.cert, config.key, config.ca});
      if (!credentials) return credentials.error();
      const auto roles = std::make_shared<Roles>(config, log_);
      if (Status status = roles->check(); !status) return status;
      (*credentials)->SetAuthMetadataProcessor(roles);
      builder.AddListeningPort(config.api_tcp, *credentials, &port);
    }
    auto door = control::UserDoor::open(config.api_unix, "api.unix", log_);
    if (!door) return std::move(door).error();
    door_ = std::move(*door);
    server_ = builder.BuildAndStart();
    if (!server_ || (!config.api_tcp.empty() && port == 0)) {
      return control::cannot_serve("api.tcp", config.api_tcp);
    }
    door_->start(
        [this](std::uint32_t user, Fd connection) { return let_in(user, std::move(connection)); });
    return {};
  }

 private:
  // This user and root may control the node.
  Status let_in(std::uint32_t user, Fd connection) {
    if (user != 0 && user != ::geteuid()) return Error{ErrorCode::kDenied, "another user"};
    grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
    return {};
  }

  const Log log_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<control::UserDoor> door_;
};

}  // namespace

Result<std::unique_ptr<ApiThread>> ApiThread::start(const Config& config, Manager& manager,
                                                    const Log& log, std::string_view version) {
  auto api = std::make_unique<Api>(manager, log, version);
  if (Status status = api->start(config); !status) return status.error();
  return std::unique_ptr<ApiThread>(std::move(api));
}

}  // namespace flyt::node
