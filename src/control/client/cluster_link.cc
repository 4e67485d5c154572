#include "control/client/cluster_link.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <algorithm>
#include <mutex>

#include "base/wall_clock.h"
#include "control/cluster.grpc.pb.h"
#include "control/settings/settings.h"

namespace flyt::vm {
namespace {

namespace v1 = cluster::v1;

constexpr std::int64_t kAnswerMs = 10000;
constexpr int kMessageBytesMax = 1 << 20;
constexpr int kKeepaliveMs = 10000;
constexpr int kKeepaliveAnswerMs = 5000;
constexpr int kReconnectLeastMs = 250;
constexpr int kReconnectMostMs = 5000;
constexpr std::string_view kUnix = "unix://";
constexpr int kUrlsMax = 16;

ErrorCode code_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
      return ErrorCode::kInvalid;
    case grpc::StatusCode::NOT_FOUND:
      return ErrorCode::kNotFound;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::kDenied;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::kLimit;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::kTimeout;
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return ErrorCode::kLost;
    default:
      return ErrorCode::kSystem;
  }
}

Phase phase_of(v1::Phase phase) {
  switch (phase) {
    case v1::PHASE_WAITING:
      return Phase::kWaiting;
    case v1::PHASE_STARTING:
      return Phase::kStarting;
    case v1::PHASE_READY:
      return Phase::kReady;
    case v1::PHASE_ENDING:
      return Phase::kEnding;
    default:
      return Phase::kNone;
  }
}

VirtualGpu value_of(const v1::VirtualGpu& message) {
  VirtualGpu gpu;
  gpu.vm = message.vm();
  gpu.phase = phase_of(message.phase());
  gpu.reason = message.reason();
  gpu.ahead = message.ahead();
  gpu.node = message.node();
  gpu.host = message.host();
  gpu.gpu_name = message.gpu_name();
  gpu.sms = message.sms_granted();
  gpu.memory_bytes = message.memory_bytes();
  for (int i = 0; i < std::min(message.urls_size(), kUrlsMax); ++i)
    gpu.urls.push_back(message.urls(i));
  gpu.token = message.token();
  gpu.token_expires_at = message.token_expires_at();
  gpu.generation = message.generation();
  return gpu;
}

// One manager, or the next one where that does not answer.
class Link final : public ClusterLink {
 public:
  using Stubs = std::vector<std::unique_ptr<v1::Vms::Stub>>;
  Link(const Config& config, Stubs stubs) : config_(config), stubs_(std::move(stubs)) {}

  Result<VirtualGpu> request() override {
    v1::GpuRequest request;
    request.set_vm(config_.name);
    request.set_token(true);
    request.set_token_seconds(config_.token_seconds);
    return ask(&v1::Vms::Stub::Request, request);
  }

  Result<VirtualGpu> release() override {
    v1::ReleaseGpuRequest request;
    request.set_vm(config_.name);
    return ask(&v1::Vms::Stub::Release, request);
  }

  Error watch(const std::function<void(const VirtualGpu&)>& take) override {
    grpc::ClientContext context;
    std::size_t at = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return {ErrorCode::kLost, "stopped"};
      watching_ = &context;
      at = at_;
    }
    v1::WatchGpuRequest request;
    request.set_vm(config_.name);
    const auto reader = stubs_[at]->Watch(&context, request);
    v1::VirtualGpu message;
    while (reader->Read(&message)) take(value_of(message));
    const grpc::Status status = reader->Finish();
    const std::lock_guard lock(mutex_);
    watching_ = nullptr;
    return failed(status, at);
  }

  void stop() override {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (watching_ != nullptr) watching_->TryCancel();
  }

 private:
  // With the mutex held.
  Error failed(const grpc::Status& status, std::size_t at) {
    const ErrorCode code = code_of(status.error_code());
    const std::string& address = config_.addresses[at];
    if (status.ok()) return {ErrorCode::kLost, address + " ended the connection"};
    if (code != ErrorCode::kLost && code != ErrorCode::kTimeout && code != ErrorCode::kSystem) {
      return {code, status.error_message()};
    }
    if (at == at_) at_ = (at_ + 1) % stubs_.size();
    return {code, address + ": " + status.error_message()};
  }

  template <class Method, class Request>
  Result<VirtualGpu> ask(Method method, const Request& request) {
    Error last{ErrorCode::kLost, "no cluster manager"};
    for (std::size_t tries = 0; tries < stubs_.size(); ++tries) {
      std::size_t at = 0;
      {
        const std::lock_guard lock(mutex_);
        if (stopped_) return Error{ErrorCode::kLost, "stopped"};
        at = at_;
      }
      grpc::ClientContext context;
      const std::int64_t end = unix_milliseconds() + kAnswerMs;
      context.set_deadline(gpr_time_from_millis(end, GPR_CLOCK_REALTIME));
      v1::VirtualGpu reply;
      const grpc::Status status = ((*stubs_[at]).*method)(&context, request, &reply);
      if (status.ok()) return value_of(reply);
      const std::lock_guard lock(mutex_);
      last = failed(status, at);
      if (last.code != ErrorCode::kLost) return last;
    }
    return last;
  }

  const Config config_;
  const Stubs stubs_;
  // gRPC's headers have annotations of the same names as ours. It guards what follows.
  std::mutex mutex_;
  std::size_t at_ = 0;
  grpc::ClientContext* watching_ = nullptr;
  bool stopped_ = false;
};

Result<std::shared_ptr<grpc::ChannelCredentials>> credentials_of(const Config& config,
                                                                 const std::string& address) {
  if (address.starts_with(kUnix)) return grpc::InsecureChannelCredentials();
  const auto cert = control::read_file(config.cert);
  if (!cert) return cert.error();
  const auto key = control::read_file(config.key);
  if (!key) return key.error();
  const auto ca = control::read_file(config.ca);
  if (!ca) return ca.error();
  return grpc::SslCredentials({*ca, *key, *cert});
}

}  // namespace

Result<std::unique_ptr<ClusterLink>> link_to_cluster(const Config& config) {
  ::setenv("GRPC_VERBOSITY", "NONE", 0);
  ::setenv("GRPC_DNS_RESOLVER", "native", 0);
  Link::Stubs stubs;
  for (const std::string& address : config.addresses) {
    const auto credentials = credentials_of(config, address);
    if (!credentials) return credentials.error();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    // A cut network says nothing by itself.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveAnswerMs);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectLeastMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMostMs);
    const std::string target =
        address.starts_with(kUnix) ? "unix:" + address.substr(kUnix.size()) : "dns:///" + address;
    stubs.push_back(v1::Vms::NewStub(grpc::CreateCustomChannel(target, *credentials, arguments)));
  }
  return std::unique_ptr<ClusterLink>(std::make_unique<Link>(config, std::move(stubs)));
}

}  // namespace flyt::vm
