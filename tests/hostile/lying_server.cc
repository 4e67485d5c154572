#include "tests/hostile/lying_server.h"

#include <span>

#include "commands/all.h"
#include "commands/ops.h"

namespace flyt::sim {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

}  // namespace

LyingServer::LyingServer() {
  known_.fill(1);
  attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32;
  attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
  attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = 2048;
  attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 16;
  attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9;
  on<commands::DescribeServer>([](const auto&, auto& reply) {
    reply.driver_version = 12000;
    reply.device_count = 1;
  });
  on<commands::DescribeDevice>([this](const auto&, auto& reply) {
    reply.name = "a GPU";
    reply.uuid = uuid_;
    reply.total_memory = 1 * kGiB;
    reply.attributes = wire::List<std::int32_t>(std::span<const std::int32_t>(attributes));
    reply.known = wire::List<std::uint8_t>(std::span<const std::uint8_t>(known_));
  });
  on<commands::RetainPrimary>();
  on<commands::LoadModule>();
}

LyingServer::~LyingServer() {
  if (thread_.joinable()) thread_.join();
}

void LyingServer::start(std::unique_ptr<transport::Connection> connection) {
  connection_ = std::move(connection);
  thread_ = std::thread([this] { serve(); });
}

void LyingServer::serve() {
  const Instant deadline = system_clock().now() + kPatience;
  const auto hello = rpc::receive_hello(*connection_, deadline);
  if (!hello) return;
  wire::Welcome welcome;
  welcome.highest_op = commands::kOpMax;
  if (!rpc::send_welcome(*connection_, welcome, deadline)) return;
  endpoint_ = std::make_unique<rpc::Endpoint>(std::move(connection_), welcome.limits, pool_);
  while (endpoint_->receive(*this, system_clock().now() + kPatience) != rpc::Received::kClosed) {
  }
}

Status LyingServer::on_command(const rpc::Command& command) {
  const auto answer = answers_.find(command.header.op);
  if (answer != answers_.end()) return answer->second(command);
  if (command.wants_reply()) {
    endpoint_->reply(command.header.sequence, CUDA_ERROR_NOT_SUPPORTED);
  }
  return {};
}

}  // namespace flyt::sim
