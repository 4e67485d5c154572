#include "control/node/api_thread.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/wall_clock.h"
#include "control/node.grpc.pb.h"
#include "control/node/messages.h"
#include "control/pki/certificate.h"
#include "transport/transport.h"

namespace flyt::node {
namespace {

constexpr int kThreadsMax = 64;
constexpr int kWatchersMax = 32;
constexpr int kMessageBytesMax = 1 << 20;
constexpr int kWatchStepMs = 500;
constexpr std::int64_t kShutdownMs = 1000;
constexpr Duration kDoorRest = std::chrono::milliseconds(10);

grpc::StatusCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::kLimit:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::kUnsupported:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case ErrorCode::kLost:
    case ErrorCode::kTimeout:
      return grpc::StatusCode::UNAVAILABLE;
    case ErrorCode::kDenied:
      return grpc::StatusCode::ALREADY_EXISTS;
    case ErrorCode::kSystem:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::INTERNAL;
}

grpc::Status status_of(const Error& error) { return {code_of(error.code), error.message}; }

template <class Value, class Message>
grpc::Status answer(const Result<Value>& value, Message* message) {
  if (!value) return status_of(value.error());
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
    if (!wanted) return status_of(wanted.error());
    return answer(manager_.create(*wanted), reply);
  }
  grpc::Status ResizeLease(grpc::ServerContext*, const v1::ResizeLeaseRequest* request,
                           v1::Lease* reply) override {
    return answer(manager_.resize(request->lease(), request_of(*request)), reply);
  }
  grpc::Status Defragment(grpc::ServerContext*, const v1::DefragmentRequest*,
                          v1::ListLeasesResponse* reply) override {
    for (const LeaseView& view : manager_.defragment()) *reply->add_leases() = message_of(view);
    return grpc::Status::OK;
  }
  grpc::Status ReleaseLease(grpc::ServerContext*, const v1::ReleaseLeaseRequest* request,
                            v1::Lease* reply) override {
    return answer(manager_.release(request->lease()), reply);
  }
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* reply) override {
    const auto sessions = manager_.sessions(request->lease());
    if (!sessions) return status_of(sessions.error());
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
    if (!leases) return status_of(leases.error());
    reply->set_draining(request->drain());
    reply->set_leases(static_cast<std::uint32_t>(*leases));
    return grpc::Status::OK;
  }
  grpc::Status Health(grpc::ServerContext*, const v1::HealthRequest*,
                      v1::HealthStatus* reply) override {
    for (const std::string& problem : manager_.problems()) reply->add_problems(problem);
    reply->set_healthy(reply->problems_size() == 0);
    return grpc::Status::OK;
  }
  grpc::Status WatchEvents(grpc::ServerContext* context, const v1::WatchEventsRequest* request,
                           grpc::ServerWriter<v1::Event>* out) override {
    const Watcher watcher(watchers_);
    if (watcher.count() > kWatchersMax) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watch events already"};
    }
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
  class Watcher {
   public:
    explicit Watcher(std::atomic<int>& count) : total_(count), count_(++count) {}
    ~Watcher() { --total_; }
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;
    int count() const { return count_; }

   private:
    std::atomic<int>& total_;
    const int count_;
  };

  Manager& manager_;
  const std::string version_;
  std::atomic<int> watchers_{0};
};

Result<std::string> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error("cannot read " + path, errno);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Those that an authority of a cluster has signed for something else than leading nodes are
// refused: VMs' above all.
class Roles final : public grpc::AuthMetadataProcessor {
 public:
  grpc::Status Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto pem = context->FindPropertyValues("x509_pem_cert");
    const auto facts = pem.empty() ? Result<pki::CertificateFacts>(Error{})
                                   : pki::facts_of({pem.front().data(), pem.front().size()});
    if (facts && (facts->role.empty() || facts->role == "admin" || facts->role == "cluster")) {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::PERMISSION_DENIED,
            "a certificate of the role admin is needed, or one without a role"};
  }
};

Result<std::shared_ptr<grpc::ServerCredentials>> mutual_tls(const Config& config) {
  const auto cert = contents(config.cert);
  if (!cert) return cert.error();
  const auto key = contents(config.key);
  if (!key) return key.error();
  const auto ca = contents(config.ca);
  if (!ca) return ca.error();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = *ca;
  options.pem_key_cert_pairs.push_back({*key, *cert});
  auto credentials = grpc::SslServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<Roles>());
  return credentials;
}

// The user that the system names, "unix-1000": this one and root may control the node.
bool may_control(const std::string& identity) {
  constexpr std::string_view kFront = "unix-";
  std::uint32_t user = 0;
  const char* end = identity.data() + identity.size();
  if (!identity.starts_with(kFront) ||
      std::from_chars(identity.data() + kFront.size(), end, user).ptr != end) {
    return false;
  }
  return user == 0 || user == ::geteuid();
}

class Api final : public ApiThread {
 public:
  Api(Manager& manager, const Log& log, std::string_view version)
      : log_(log), service_(manager, version) {}
  ~Api() override {
    if (listener_) listener_->shut_down();
    if (door_.joinable()) door_.join();
    const std::int64_t end = unix_milliseconds() + kShutdownMs;
    if (server_) server_->Shutdown(gpr_time_from_millis(end, GPR_CLOCK_REALTIME));
  }

  Status start(const Config& config) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(kThreadsMax);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service_);
    int port = 0;
    if (!config.api_tcp.empty()) {
      const auto credentials = mutual_tls(config);
      if (!credentials) return credentials.error();
      builder.AddListeningPort(config.api_tcp, *credentials, &port);
    }
    const auto url = transport::parse_url("unix://" + config.api_unix);
    if (!url) return url.error();
    auto listener = transport::listen(*url);
    if (!listener) return std::move(listener).error();
    listener_ = std::move(*listener);
    server_ = builder.BuildAndStart();
    if (!server_ || (!config.api_tcp.empty() && port == 0)) {
      return Error{ErrorCode::kSystem, "api.tcp: cannot serve at " + config.api_tcp +
                                           ": the address is taken, or a certificate is bad"};
    }
    door_ = std::thread([this] { let_in(); });
    return {};
  }

 private:
  // gRPC itself does not ask who is at a Unix socket.
  void let_in() {
    while (true) {
      auto connection = listener_->accept(transport::kNever, nullptr);
      if (!connection) {
        if (connection.error().code == ErrorCode::kLost) return;
        // No descriptor is free, or the like: it passes.
        system_clock().sleep_for(kDoorRest);
        continue;
      }
      const std::string identity = transport::identity_of_peer((*connection)->fd());
      if (!may_control(identity)) {
        log_.warn("refused", {{"peer", identity}, {"reason", "another user"}});
        continue;
      }
      const int own = ::fcntl((*connection)->fd(), F_DUPFD_CLOEXEC, 0);
      (*connection)->abandon();
      if (own < 0) continue;
      ::fcntl(own, F_SETFL, ::fcntl(own, F_GETFL) | O_NONBLOCK);
      grpc::AddInsecureChannelFromFd(server_.get(), own);
    }
  }

  const Log log_;
  Service service_;
  std::unique_ptr<transport::Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
  std::thread door_;
};

}  // namespace

Result<std::unique_ptr<ApiThread>> ApiThread::start(const Config& config, Manager& manager,
                                                    const Log& log, std::string_view version) {
  auto api = std::make_unique<Api>(manager, log, version);
  if (Status status = api->start(config); !status) return status.error();
  return std::unique_ptr<ApiThread>(std::move(api));
}

}  // namespace flyt::node
