#include "control/cluster/enrol_thread.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>

#include <mutex>

#include "base/log_limit.h"
#include "control/cluster.grpc.pb.h"
#include "control/cluster/records.h"
#include "control/cluster/wrong_tries.h"
#include "control/daemon/serving.h"
#include "control/grpc/credentials.h"
#include "control/grpc/status.h"
#include "control/pki/certificate.h"
#include "control/pki/enrol_token.h"
#include "control/pki/revocations.h"

namespace flyt::cluster {
namespace {

// Anybody may connect: all of it is bounded, and short.
constexpr int kThreadsMax = 8;
constexpr int kStreamsMax = 4;
constexpr int kMessageBytesMax = 16 << 10;
constexpr int kMetadataBytesMax = 8 << 10;
constexpr std::size_t kMemoryBytesMax = 64 << 20;
constexpr int kHandshakeMs = 5'000;
constexpr int kConnectionMs = 20'000;
constexpr auto kShutdownTime = std::chrono::seconds(1);

class Service final : public v1::Enrolment::Service {
 public:
  Service(const Config& config, Chair& chair, const Log& log, pki::KeyPair authority)
      : config_(config),
        chair_(chair),
        log_(log),
        authority_(std::move(authority)),
        revocations_(config.crl, config.ca) {}

  grpc::Status Enrol(grpc::ServerContext* context, const v1::EnrolRequest* request,
                     v1::EnrolReply* reply) override {
    const std::string from = origin_of(context->peer());
    const Answerer who = chair_.answerer();
    if (grpc::Status status = admit(who, from); !status.ok()) return status;
    auto token = pki::parse_enrol_token(request->token());
    if (!token) return refuse(nullptr, from, {}, {ErrorCode::kNotFound, token.error().message});
    const EnrolClaim claim{std::move(token->id), std::move(token->secret), request->role(),
                           request->name()};
    const Status done = enrol(*who.here, claim, from, request->signing_request(), *reply);
    return done ? grpc::Status::OK : refuse(who.here.get(), from, claim, done.error());
  }

  grpc::Status Renew(grpc::ServerContext* context, const v1::RenewRequest* request,
                     v1::EnrolReply* reply) override {
    const std::string from = origin_of(context->peer());
    const Answerer who = chair_.answerer();
    if (grpc::Status status = admit(who, from); !status.ok()) return status;
    const auto pem = context->auth_context()->FindPropertyValues("x509_pem_cert");
    const auto shown = shown_by(pem.empty() ? "" : std::string(pem[0].data(), pem[0].size()));
    const Status done =
        shown ? renew(*who.here, *shown, from, request->signing_request(), *reply) : shown.error();
    if (done) return grpc::Status::OK;
    refusals_.warn(
        "not renewed",
        {{"from", from}, {"name", shown ? shown->name : ""}, {"why", done.error().message}});
    if (shown) return control::status_of(done.error());
    const std::lock_guard lock(mutex_);
    wrong_.wrong(from, system_clock().now());
    return {grpc::StatusCode::PERMISSION_DENIED, done.error().message};
  }

 private:
  grpc::Status admit(const Answerer& who, const std::string& from) {
    const std::lock_guard lock(mutex_);
    if (!wrong_.may_try(from, system_clock().now())) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "too many wrong tokens from " + from + "; try again in a minute"};
    }
    if (who.here) return grpc::Status::OK;
    return {
        grpc::StatusCode::UNAVAILABLE,
        who.leader ? "cluster manager " + who.leader->name() + " decides: enrol there" : who.why};
  }

  // For what its certificate, which the handshake has found to be the authority's, was made. People
  // ask an admin.
  Result<pki::CertificateRequest> shown_by(const std::string& pem) {
    const auto denied = [](std::string why) { return Error{ErrorCode::kDenied, std::move(why)}; };
    if (pem.empty()) return denied("a certificate is renewed for who shows it");
    const auto facts = pki::facts_of(pem);
    if (!facts) return facts.error();
    if (Status good = revocations_.admit(*facts); !good) return good.error();
    if (facts->role != "node" && facts->role != "vm") {
      return denied("certificates of nodes and VMs are renewed, not of the role '" + facts->role +
                    "'");
    }
    auto request = pki::request_of(pem);
    if (request) request->days = config_.enrol_days;
    return request;
  }

  Status renew(Manager& manager, const pki::CertificateRequest& shown, const std::string& from,
               const std::string& signing_request, v1::EnrolReply& reply) {
    const std::string who = shown.role + " " + shown.name;
    {
      // Nor may one machine fill the audit log.
      const std::lock_guard lock(mutex_);
      const Instant now = system_clock().now();
      if (!wrong_.may_try(who, now)) {
        return Error{ErrorCode::kLimit, who + " was renewed too often; try again in a minute"};
      }
      wrong_.wrong(who, now);
    }
    auto certificate = pki::sign(authority_, signing_request, shown);
    if (!certificate) return std::move(certificate).error();
    const auto facts = pki::facts_of(*certificate);
    if (!facts) return facts.error();
    v1::AuditEntry entry;
    entry.set_caller(shown.name);
    if (const auto role = role_of(shown.role)) entry.set_role(message_of(*role));
    entry.set_peer(from);
    entry.set_action("renew");
    entry.set_subject(who);
    entry.set_details("certificate " + facts->serial);
    entry.set_result("ok");
    // What is not written down is not given: a stolen key would make certificates unseen.
    if (Status written = manager.audit(std::move(entry)); !written) return written;
    reply.set_certificate(std::move(*certificate));
    reply.set_authority(authority_.certificate);
    return {};
  }

  Status enrol(Manager& manager, const EnrolClaim& claim, const std::string& from,
               const std::string& signing_request, v1::EnrolReply& reply) {
    const auto granted = manager.look_at(claim);
    if (!granted) return granted.error();
    // What the request says about itself counts for nothing.
    auto certificate = pki::sign(authority_, signing_request,
                                 {.name = granted->name(),
                                  .role = granted->role(),
                                  .hosts = {granted->hosts().begin(), granted->hosts().end()},
                                  .days = config_.enrol_days});
    if (!certificate) return std::move(certificate).error();
    const auto facts = pki::facts_of(*certificate);
    if (!facts) return facts.error();
    // First the token is spent, then the certificate is told: an answer that is lost costs a token.
    if (Status status = manager.spend(claim, facts->serial, from); !status) return status;
    note(manager, from, claim, "certificate " + facts->serial, "ok");
    reply.set_certificate(std::move(*certificate));
    reply.set_authority(authority_.certificate);
    return {};
  }

  grpc::Status refuse(Manager* manager, const std::string& from, const EnrolClaim& claim,
                      const Error& error) {
    const bool ours = error.code == ErrorCode::kLost || error.code == ErrorCode::kSystem;
    if (!ours) {
      const std::lock_guard lock(mutex_);
      wrong_.wrong(from, system_clock().now());
    }
    refusals_.warn("not enrolled", {{"from", from}, {"token", claim.id}, {"why", error.message}});
    // Whoever knows no secret writes nothing into the audit log.
    const bool known = manager != nullptr && error.code != ErrorCode::kNotFound;
    if (known && !ours) note(*manager, from, claim, "", error.message);
    const bool denied = error.code == ErrorCode::kNotFound || error.code == ErrorCode::kDenied;
    if (denied) return {grpc::StatusCode::PERMISSION_DENIED, error.message};
    return control::status_of(error);
  }

  void note(Manager& manager, const std::string& from, const EnrolClaim& claim,
            const std::string& details, const std::string& result) {
    v1::AuditEntry entry;
    entry.set_caller("token " + claim.id);
    entry.set_peer(from);
    entry.set_action("enrol");
    entry.set_subject(claim.role + " " + claim.name);
    entry.set_details(details);
    entry.set_result(result);
    if (Status written = manager.audit(std::move(entry)); !written) {
      log_.error("not in the audit log", {{"action", "enrol"}, {"why", written.error().message}});
    }
  }

  const Config& config_;
  Chair& chair_;
  const Log log_;
  LogLimit refusal_lines_;
  const LimitedLog refusals_{log_, refusal_lines_};
  const pki::KeyPair authority_;
  pki::Revocations revocations_;
  // gRPC's headers have annotations of the same names as ours. It guards what follows.
  std::mutex mutex_;
  WrongTries wrong_;
};

class Server final : public EnrolThread {
 public:
  Server(const Config& config, Chair& chair, const Log& log, pki::KeyPair authority)
      : service_(config, chair, log, std::move(authority)) {}
  ~Server() override {
    if (server_) server_->Shutdown(control::time_in(kShutdownTime));
  }

  Status open(const Config& config) {
    const auto credentials = control::open_server_credentials({config.cert, config.key, config.ca});
    if (!credentials) return credentials.error();
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(kThreadsMax);
    quota.Resize(kMemoryBytesMax);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kConnectionMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kConnectionMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&service_);
    int port = 0;
    builder.AddListeningPort(config.enrol, *credentials, &port);
    server_ = builder.BuildAndStart();
    if (server_ && port != 0) return {};
    return control::cannot_serve("enrol.listen", config.enrol);
  }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

class Nothing final : public EnrolThread {};

Result<pki::KeyPair> authority_of(const Config& config) {
  auto certificate = control::read_file(config.ca);
  if (!certificate) return std::move(certificate).error();
  auto key = control::read_file(config.enrol_key);
  if (!key) return std::move(key).error();
  struct stat facts {};
  if (::stat(config.enrol_key.c_str(), &facts) == 0 && (facts.st_mode & S_IRWXO) != 0) {
    return Error{ErrorCode::kDenied, config.enrol_key + " can be read by everybody: chmod o-rwx"};
  }
  pki::KeyPair pair{std::move(*certificate), std::move(*key)};
  if (Status status = pki::check_authority(pair); !status) {
    return Error{status.error().code, config.enrol_key + ": " + status.error().message};
  }
  return pair;
}

}  // namespace

Result<std::unique_ptr<EnrolThread>> EnrolThread::start(const Config& config, Chair& chair,
                                                        const Log& log) {
  if (config.enrol.empty()) return std::unique_ptr<EnrolThread>(std::make_unique<Nothing>());
  auto authority = authority_of(config);
  if (!authority) return std::move(authority).error();
  auto server = std::make_unique<Server>(config, chair, log, std::move(*authority));
  if (Status status = server->open(config); !status) return status.error();
  return std::unique_ptr<EnrolThread>(std::move(server));
}

}  // namespace flyt::cluster
