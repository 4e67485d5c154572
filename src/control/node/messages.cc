#include "control/node/messages.h"

#include "base/text.h"

namespace flyt::node {
namespace {

// Of a reason or an event: what others wrote is in it.
constexpr std::size_t kTextBytesMax = 1024;

std::uint64_t microseconds(Duration time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

}  // namespace

v1::Mode message_of(Mode mode) {
  switch (mode) {
    case Mode::kIsolated:
      return v1::MODE_ISOLATED;
    case Mode::kShared:
      return v1::MODE_SHARED;
  }
  return v1::MODE_UNSPECIFIED;
}

v1::NodeDescription message_of(const NodeView& node, std::string_view version) {
  v1::NodeDescription message;
  message.set_name(node.name);
  message.set_version(std::string(version));
  message.set_server(node.server);
  message.set_draining(node.draining);
  message.set_overhead_per_lease_bytes(node.overhead_per_lease);
  message.set_sessions_per_lease(node.sessions_per_lease);
  message.set_leases_max(node.leases_max);
  message.set_leases(static_cast<std::uint32_t>(node.leases));
  for (const GpuView& view : node.gpus) {
    v1::Gpu& gpu = *message.add_gpus();
    gpu.set_index(view.gpu.index);
    gpu.set_name(view.gpu.name);
    gpu.set_uuid(view.gpu.uuid);
    gpu.set_mode(message_of(view.gpu.mode));
    gpu.set_sms(view.gpu.sms());
    gpu.set_memory_bytes(view.gpu.memory_bytes);
    gpu.set_memory_leased_bytes(view.quota_bytes);
    gpu.set_memory_overhead_bytes(view.overhead_bytes);
    gpu.set_memory_free_bytes(view.free_bytes);
    gpu.set_mps(view.mps);
    gpu.set_failed(plain_text(view.failed, kTextBytesMax));
    for (std::size_t i = 0; i < view.gpu.groups.size(); ++i) {
      v1::Group& group = *gpu.add_groups();
      group.set_sms(view.gpu.groups[i]);
      group.set_lease_id(view.holders[i]);
      group.set_leases(view.holder_counts[i]);
    }
    gpu.set_sms_free(view.sms_free);
    gpu.set_sm_percent(view.gpu.sm_percent);
    gpu.set_rest_is_group(view.gpu.rest_is_group);
    gpu.set_sessions_max(view.sessions_max);
    gpu.set_sessions(view.sessions.used());
    gpu.set_sessions_ready(view.sessions.ready);
    gpu.set_sessions_refused(view.refused);
  }
  return message;
}

v1::Lease message_of(const LeaseView& view) {
  const Lease& lease = view.lease;
  v1::Lease message;
  message.set_id(lease.id);
  message.set_name(lease.name);
  message.set_gpu(lease.grant.gpu);
  message.set_mode(message_of(lease.grant.mode));
  message.set_sms_asked(lease.sms_asked);
  message.set_sms_granted(lease.grant.sms);
  for (const std::uint32_t group : lease.grant.groups) message.add_groups(group);
  message.set_memory_bytes(lease.grant.memory_bytes);
  message.set_overhead_bytes(lease.grant.overhead_bytes);
  message.set_priority(lease.priority);
  message.set_created_at(lease.created_at);
  message.set_expires_at(lease.expires_at);
  for (const auto& [key, value] : lease.labels) (*message.mutable_labels())[key] = value;
  message.set_state(std::string(to_string(lease.state)));
  message.set_state_reason(plain_text(lease.state_reason, kTextBytesMax));
  for (const std::string& url : view.urls) message.add_urls(url);
  message.set_server_pid(static_cast<std::uint32_t>(lease.server.pid));
  message.set_restarts(lease.restarts);
  message.set_confined(lease.confined);
  message.set_memory_pending_bytes(lease.memory_pending);
  if (view.use) {
    message.set_memory_used_bytes(view.use->memory_bytes);
    message.set_sessions(view.use->sessions);
    message.set_sessions_behind(view.use->behind);
    message.set_fixed(view.use->fixed);
    message.set_moves(view.use->moves);
    message.set_measured_microseconds(microseconds(view.use->work.measured));
    message.set_busy_microseconds(microseconds(view.use->work.busy));
    message.set_queued_microseconds(microseconds(view.use->work.queued));
    message.set_launches(view.use->work.launches);
    message.set_last_move_microseconds(microseconds(view.use->last_move));
  }
  return message;
}

v1::Session message_of(const SessionView& view) {
  v1::Session message;
  message.set_lease_id(view.lease_id);
  message.set_lease_name(view.lease_name);
  message.set_server_pid(view.session.server_process);
  message.set_client_pid(view.session.client_process);
  message.set_client(view.session.name);
  message.set_peer(view.session.machine);
  message.set_memory_bytes(view.session.memory_bytes);
  message.set_seconds(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(view.session.age).count()));
  message.set_launches(view.session.launches);
  return message;
}

v1::Token message_of(const TokenView& token) {
  v1::Token message;
  message.set_token(token.token);
  message.set_expires_at(token.expires_at);
  for (const std::string& url : token.urls) message.add_urls(url);
  message.set_lease_id(token.lease_id);
  return message;
}

v1::Event message_of(const Event& event) {
  v1::Event message;
  message.set_number(event.number);
  message.set_at_ms(event.at_ms);
  message.set_kind(event.kind);
  message.set_lease_id(event.lease_id);
  message.set_lease_name(event.lease_name);
  message.set_text(plain_text(event.text, kTextBytesMax));
  return message;
}

Result<LeaseRequest> request_of(const v1::CreateLeaseRequest& message) {
  LeaseRequest request{.name = message.name()};
  if (message.has_gpu()) request.gpu = message.gpu();
  switch (message.mode()) {
    case v1::MODE_UNSPECIFIED:
      break;
    case v1::MODE_ISOLATED:
      request.mode = Mode::kIsolated;
      break;
    case v1::MODE_SHARED:
      request.mode = Mode::kShared;
      break;
    default:
      return Error{ErrorCode::kInvalid, "there is no such mode"};
  }
  request.sms = message.sms();
  request.memory_bytes = message.memory_bytes();
  request.priority = message.priority();
  request.expires_at = message.expires_at();
  for (const auto& [key, value] : message.labels()) request.labels[key] = value;
  return request;
}

ResizeRequest request_of(const v1::ResizeLeaseRequest& message) {
  ResizeRequest request;
  if (message.has_sms()) request.sms = message.sms();
  if (message.has_memory_bytes()) request.memory_bytes = message.memory_bytes();
  request.when_free = message.when_free();
  return request;
}

}  // namespace flyt::node
