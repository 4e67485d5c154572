#include "control/client/cluster_link.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "control/cluster.grpc.pb.h"
#include "control/grpc/call.h"
#include "control/grpc/channel.h"
#include "control/grpc/keepalive.h"

namespace flyt::vm {
namespace {

namespace v1 = cluster::v1;

constexpr auto kAnswerTime = std::chrono::seconds(10);
constexpr int kMessageBytesMax = 1 << 20;
constexpr int kKeepaliveMs = 10000;
constexpr int kKeepaliveAnswerMs = 5000;
constexpr int kReconnectLeastMs = 250;
constexpr int kReconnectMostMs = 5000;
constexpr int kUrlsMax = 16;

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
    request.set_host(config_.host);
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
    const ErrorCode code = control::error_code_of(status.error_code());
    const std::string& address = config_.addresses[at];
    if (status.ok()) return {ErrorCode::kLost, address + " ended the connection"};
    if (code != ErrorCode::kLost && code != ErrorCode::kSystem) {
      return {code, control::words_of(status)};
    }
    if (at == at_) at_ = (at_ + 1) % stubs_.size();
    return {code, address + ": " + control::words_of(status)};
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
      v1::VirtualGpu reply;
      const grpc::Status status = control::call(*stubs_[at], method, request, kAnswerTime, reply);
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

}  // namespace

Result<std::unique_ptr<ClusterLink>> link_to_cluster(const Config& config) {
  Link::Stubs stubs;
  const auto revoked = pki::Revocations::of(config.crl, config.ca);
  for (const std::string& address : config.addresses) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    control::keep_alive(arguments, {.every_ms = kKeepaliveMs, .answer_ms = kKeepaliveAnswerMs});
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectLeastMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMostMs);
    const auto channel = control::open_channel(address, {config.cert, config.key, config.ca},
                                               control::ServerRole::kCluster, arguments, revoked);
    if (!channel) return channel.error();
    stubs.push_back(v1::Vms::NewStub(*channel));
  }
  return std::unique_ptr<ClusterLink>(std::make_unique<Link>(config, std::move(stubs)));
}

}  // namespace flyt::vm
