#include "client/nvml/monitor.h"

#include <unistd.h>

#include "client/settings.h"
#include "commands/nvml_system.h"
#include "commands/ops.h"
#include "transport/transport.h"
#include "wire/hello.h"

namespace flyt::client::nvml {
namespace {

constexpr Duration kGoodbyeTime = std::chrono::milliseconds(200);

wire::ClientHello hello(std::string credential) {
  wire::ClientHello hello;
  hello.credential = std::move(credential);
  hello.name = ::program_invocation_short_name;
  hello.process_id = static_cast<std::uint32_t>(::getpid());
  hello.user_id = static_cast<std::uint32_t>(::getuid());
  hello.role = wire::ConnectionRole::kMonitor;
  hello.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
  return hello;
}

}  // namespace

Monitor::Monitor() : log_("flyt", log_level()), pushes_(std::make_unique<rpc::NoPushes>()) {}

Monitor::~Monitor() {
  if (channel_ != nullptr) channel_->shut_down("the client ends the monitor");
}

Result<std::shared_ptr<Monitor>> Monitor::open() {
  std::shared_ptr<Monitor> monitor(std::unique_ptr<Monitor>(new Monitor()));
  auto provision = find_provision(monitor->log_);
  if (!provision) return std::move(provision).error();
  Status status = monitor->start(*provision);
  while (!status && find_anew(*provision, status.error(), monitor->log_)) {
    status = monitor->start(*provision);
  }
  if (!status) {
    monitor->log_.warn("no monitor of the GPU server",
                       {{"url", provision->url}, {"why", status.error().message}});
    return std::move(status).error();
  }
  return monitor;
}

Status Monitor::start(Provision& provision) {
  const Instant deadline = system_clock().now() + connect_timeout();
  auto url = transport::parse_url(provision.url);
  if (!url) return std::move(url).error();
  auto connection = transport::connect(*url, deadline);
  if (!connection) return std::move(connection).error();
  auto channel = rpc::Channel::open(std::move(connection).value(), hello(provision.credential),
                                    deadline, *pushes_, {});
  if (!channel) return std::move(channel).error();
  desk_ = std::move(provision.desk);
  channel_ = std::move(channel).value();
  channel_->answer_by(system_clock().now() + kDescriptionPatience);
  Status described = describe();
  channel_->answer_by({});
  return described;
}

Status Monitor::describe() {
  commands::NvmlDescribe::Reply reply;
  rpc::Reply answer;
  if (ask(commands::NvmlDescribe{}, reply, answer) != NVML_SUCCESS) {
    return Error{ErrorCode::kLost, "the server does not say which GPUs it has"};
  }
  auto gpus = flyt::nvml::decode_gpus(reply.gpus);
  if (!gpus) return std::move(gpus).error();
  gpus_ = std::move(gpus).value();
  driver_version_ = reply.driver_version;
  nvml_version_ = reply.nvml_version;
  cuda_version_ = reply.cuda_version;
  return {};
}

const flyt::nvml::Gpu* Monitor::find(nvmlDevice_t device) const {
  const auto count = static_cast<std::uint32_t>(gpus_.size());
  const std::uint32_t index = flyt::nvml::index_of(device, count);
  return index < count ? &gpus_[index] : nullptr;
}

void Monitor::close() {
  // Nobody waits for a server that does not take it.
  static_cast<void>(channel_->close(system_clock().now() + kGoodbyeTime).ok());
}

}  // namespace flyt::client::nvml
