// What a lease has, and what it may have.
#include "server/hooks_lease.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/wall_clock.h"

namespace flyt::server::admin::hooks {
namespace {

using Reply = commands::LeaseDescribe::Reply;

template <std::size_t size>
void put_text(char (&into)[size], const std::string& text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(into, text.data(), length);
  into[length] = '\0';
}

FlytAdminSession told(const UsageBoard::Row& row) {
  FlytAdminSession session{};
  session.number = row.number;
  session.server_process = row.server_process;
  session.client_process = row.client_process;
  session.nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(row.age.count(), 0));
  session.memory_bytes = row.bytes;
  session.launches = row.counters.launches;
  session.posted = row.counters.posted;
  session.waited = row.counters.waited;
  session.received_bytes = row.counters.received_bytes;
  session.contexts = row.contexts;
  session.monitor = row.kind == SessionKind::kMonitor ? 1 : 0;
  put_text(session.name, row.name);
  put_text(session.machine, row.machine);
  return session;
}

FlytAdminFault told(const Fault& fault) {
  FlytAdminFault told{};
  told.number = fault.number;
  told.session = fault.session;
  told.unix_ms = static_cast<std::uint64_t>(fault.unix_ms);
  told.error = fault.error;
  told.suspects = fault.suspects;
  told.client_process = fault.client_process;
  told.goes_on = fault.goes_on ? 1 : 0;
  put_text(told.name, fault.name);
  return told;
}

// A quota is of one GPU.
bool has_one_gpu(const Request& request) { return request.parts().fleet.gpus.size() == 1; }

}  // namespace

void lease_describe(Request request, const commands::LeaseDescribe&) {
  const ControllerParts& parts = request.parts();
  const MemoryQuota quota = parts.board.quota();
  Reply reply;
  reply.lease = parts.lease.id;
  if (!parts.fleet.gpus.empty()) {
    const auto& gpu = parts.fleet.gpus.front();
    reply.gpu_name = gpu.name;
    reply.gpu_uuid = bytes_at(gpu.uuid.data(), gpu.uuid.size());
    reply.gpu_memory = gpu.memory_bytes;
  }
  reply.gpu_sms = parts.fleet.sms.all;
  reply.memory_limit = quota.limit;
  reply.memory_used = quota.used;
  reply.context_bytes = parts.fleet.context_bytes;
  const SmGrant grant = parts.board.grant();
  reply.sms_asked = grant.asked;
  reply.sms_granted = grant.granted;
  reply.group_sms = parts.fleet.sms.group;
  reply.groups = wire::List<std::uint32_t>(grant.groups);
  for (const UsageBoard::Row& row : parts.board.rows()) {
    reply.sessions += row.kind == SessionKind::kCuda ? 1U : 0U;
  }
  reply.sessions_max = parts.sessions_max;
  reply.tokens = parts.admission != nullptr;
  reply.draining = parts.board.draining();
  const UsageBoard::Moving moving = parts.board.moving();
  reply.behind = moving.behind;
  reply.fixed = moving.fixed;
  const UsageBoard::Moves moves = parts.board.moves();
  reply.moves = moves.count;
  reply.last_move_ns = static_cast<std::uint64_t>(moves.last.count());
  request.reply(FLYT_ADMIN_SUCCESS, reply);
}

FlytAdminResult lease_use(Request& request, const commands::LeaseUse&,
                          commands::LeaseUse::Reply& reply) {
  const UsageBoard::Total total = request.parts().board.total();
  reply.measured_ns = static_cast<std::uint64_t>(total.since.count());
  reply.busy_ns = total.counters.busy_ns;
  reply.queued_ns = total.counters.queued_ns;
  reply.launches = total.counters.launches;
  return FLYT_ADMIN_SUCCESS;
}

FlytAdminResult lease_totals(Request& request, const commands::LeaseTotals&,
                             commands::LeaseTotals::Reply& reply) {
  const UsageBoard::Total total = request.parts().board.total();
  reply.posted = total.counters.posted;
  reply.waited = total.counters.waited;
  reply.received_bytes = total.counters.received_bytes;
  reply.returns = total.returns;
  return FLYT_ADMIN_SUCCESS;
}

FlytAdminResult lease_chip(Request& request, const commands::LeaseChip&,
                           commands::LeaseChip::Reply& reply) {
  const SmFacts& facts = request.parts().fleet.sms;
  reply.sms = facts.all;
  reply.group_sms = facts.group;
  reply.groups = facts.groups;
  reply.last_sms = facts.last;
  return FLYT_ADMIN_SUCCESS;
}

void lease_faults(Request request, const commands::LeaseFaults& command) {
  commands::LeaseFaults::Reply reply;
  const UsageBoard& board = request.parts().board;
  const FaultCounts counts = board.fault_counts();
  reply.caused = counts.caused;
  reply.suspected = counts.suspected;
  reply.survived = counts.survived;
  reply.lost = counts.lost;
  std::vector<FlytAdminFault> faults;
  for (const Fault& fault : board.faults(command.after)) faults.push_back(told(fault));
  static_assert(UsageBoard::kFaultsKept <= commands::LeaseFaults::Reply::kFaultsCountMax);
  reply.faults = wire::List<FlytAdminFault>(faults);
  request.reply(FLYT_ADMIN_SUCCESS, reply);
}

void lease_sessions(Request request, const commands::LeaseSessions& command) {
  commands::LeaseSessions::Reply reply;
  std::vector<FlytAdminSession> sessions;
  for (const UsageBoard::Row& row : request.parts().board.rows()) {
    if (row.number <= command.after) continue;
    if (sessions.size() == reply.kSessionsCountMax) break;
    sessions.push_back(told(row));
  }
  reply.sessions = wire::List<FlytAdminSession>(sessions);
  request.reply(FLYT_ADMIN_SUCCESS, reply);
}

FlytAdminResult lease_set_memory(Request& request, const commands::LeaseSetMemory& command,
                                 commands::LeaseSetMemory::Reply& reply) {
  const ControllerParts& parts = request.parts();
  if (!has_one_gpu(request)) return FLYT_ADMIN_UNSUPPORTED;
  FlytAdminResult result = FLYT_ADMIN_INVALID;
  if (command.bytes <= parts.fleet.gpus.front().memory_bytes) {
    const auto shrink =
        command.when_free ? UsageBoard::Shrink::kWhenFree : UsageBoard::Shrink::kRefuse;
    result = parts.board.set_quota(command.bytes, shrink) ? FLYT_ADMIN_SUCCESS : FLYT_ADMIN_IN_USE;
  }
  const MemoryQuota quota = parts.board.quota();
  reply.limit = quota.limit;
  reply.used = quota.used;
  parts.log.info("memory of the lease", {{"lease", parts.lease.id},
                                         {"asked", command.bytes},
                                         {"limit", quota.limit},
                                         {"used", quota.used},
                                         {"done", result == FLYT_ADMIN_SUCCESS}});
  return result;
}

// Sessions that are there move by themselves; the last one to come has the board tell so.
void lease_set_sms(Request request, const commands::LeaseSetSms& command) {
  constexpr std::uint32_t kWaitMsMax = 60000;
  const ControllerParts& parts = request.parts();
  commands::LeaseSetSms::Reply reply;
  reply.group_sms = parts.fleet.sms.group;
  if (!has_one_gpu(request)) return request.reply(FLYT_ADMIN_UNSUPPORTED, reply);
  const Instant begun = system_clock().now();
  const auto wanted = grant_sms(parts.fleet.sms, command.sms, command.groups.to_vector());
  if (wanted) {
    const bool others = parts.board.grant().groups != wanted->groups;
    const std::uint32_t version = parts.board.set_grant(*wanted);
    const bool anybody = others && parts.board.moving().sessions != 0;
    parts.board.await_moves(version,
                            std::chrono::milliseconds(std::min(command.wait_ms, kWaitMsMax)));
    const Duration took = system_clock().now() - begun;
    reply.nanoseconds = static_cast<std::uint64_t>(took.count());
    if (anybody) parts.board.count_move(took);
  }
  reply.behind = parts.board.moving().behind;
  const SmGrant grant = parts.board.grant();
  reply.sms_granted = grant.granted;
  reply.granted = wire::List<std::uint32_t>(grant.groups);
  parts.log.info("multiprocessors of the lease", {{"lease", parts.lease.id},
                                                  {"asked", command.sms},
                                                  {"granted", grant.granted},
                                                  {"behind", reply.behind},
                                                  {"done", wanted.ok()}});
  const bool unsupported = !wanted && wanted.error().code == ErrorCode::kUnsupported;
  request.reply(wanted        ? FLYT_ADMIN_SUCCESS
                : unsupported ? FLYT_ADMIN_UNSUPPORTED
                              : FLYT_ADMIN_INVALID,
                reply);
}

FlytAdminResult lease_end_session(Request& request, const commands::LeaseEndSession& command) {
  if (!request.parts().board.request_end(command.session)) return FLYT_ADMIN_NOT_FOUND;
  request.controller().wake_parent();
  return FLYT_ADMIN_SUCCESS;
}

FlytAdminResult lease_drain(Request& request, const commands::LeaseDrain& command) {
  constexpr std::uint32_t kDrainSecondsMax = 86400;
  if (command.seconds > kDrainSecondsMax) return FLYT_ADMIN_INVALID;
  request.parts().board.request_drain(command.seconds);
  request.controller().wake_parent();
  return FLYT_ADMIN_SUCCESS;
}

void lease_new_token(Request request, const commands::LeaseNewToken& command) {
  const Admission* const admission = request.parts().admission;
  commands::LeaseNewToken::Reply reply;
  if (admission == nullptr) return request.reply(FLYT_ADMIN_UNSUPPORTED, reply);
  const auto token = admission->new_token(command.seconds, command.sessions, unix_seconds());
  if (!token) return request.reply(FLYT_ADMIN_INVALID, reply);
  reply.token = *token;
  request.reply(FLYT_ADMIN_SUCCESS, reply);
}

}  // namespace flyt::server::admin::hooks
