#include "control/lease/control_client.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "commands/lease.h"
#include "commands/ops.h"
#include "nvml/gpu.h"
#include "transport/transport.h"
#include "wire/fields.h"

namespace flyt::control {
namespace {

constexpr Duration kGoodbyeTime = std::chrono::milliseconds(200);

// Clients call themselves what they like, and it goes into messages and to terminals.
template <std::size_t size>
std::string text_in(const char (&text)[size]) {
  return plain_text({text, ::strnlen(text, size)}, size);
}

SessionState state_of(const FlytAdminSession& told) {
  SessionState state;
  state.number = told.number;
  state.server_process = told.server_process;
  state.client_process = told.client_process;
  state.name = text_in(told.name);
  state.machine = text_in(told.machine);
  state.age = Duration(static_cast<std::int64_t>(told.nanoseconds));
  state.memory_bytes = told.memory_bytes;
  state.launches = told.launches;
  state.posted = told.posted;
  state.waited = told.waited;
  state.received_bytes = told.received_bytes;
  state.contexts = told.contexts;
  state.monitor = told.monitor != 0;
  return state;
}

SmState state_of(const commands::LeaseSetSms::Reply& reply) {
  return {reply.sms_granted, reply.group_sms, reply.granted.to_vector(), reply.behind,
          Duration(static_cast<std::int64_t>(reply.nanoseconds))};
}

std::uint32_t milliseconds_of(Duration patience) {
  constexpr std::int64_t kMax = 60000;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ms, 0, kMax));
}

}  // namespace

ControlClient::ControlClient(std::string_view url)
    : url_(url), pushes_(std::make_unique<rpc::NoPushes>()) {}

ControlClient::~ControlClient() {
  if (channel_ == nullptr) return;
  // Nobody waits for a server that does not take it.
  static_cast<void>(channel_->close(system_clock().now() + kGoodbyeTime).ok());
}

Result<std::unique_ptr<ControlClient>> ControlClient::connect(std::string_view text,
                                                              Duration patience) {
  const Instant deadline = system_clock().now() + patience;
  const auto url = transport::parse_url(text);
  if (!url) return url.error();
  const auto at = [&](const Error& error) {
    return Error{error.code, "no control at " + std::string(text) + ": " + error.message};
  };
  auto connection = transport::connect(*url, deadline);
  if (!connection) return at(connection.error());
  wire::ClientHello hello;
  hello.name = ::program_invocation_short_name;
  hello.process_id = static_cast<std::uint32_t>(::getpid());
  hello.user_id = static_cast<std::uint32_t>(::getuid());
  hello.role = wire::ConnectionRole::kAdmin;
  hello.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
  std::unique_ptr<ControlClient> client(new ControlClient(text));
  auto channel =
      rpc::Channel::open(std::move(connection).value(), hello, deadline, *client->pushes_);
  if (!channel) return at(channel.error());
  client->channel_ = std::move(channel).value();
  return client;
}

// A reply's values are there after a refusal, too.
template <class Command>
Status ControlClient::ask(const Command& command, typename Command::Reply& reply,
                          rpc::Reply& answer) {
  const auto lost = [&](std::string_view why) {
    return Error{ErrorCode::kLost, "the server at " + url_ + " is gone: " + std::string(why)};
  };
  if (channel_->welcome().highest_op < Command::kOp) {
    return Error{ErrorCode::kUnsupported,
                 "the server at " + url_ + " is older than " + std::string(Command::kName)};
  }
  rpc::Post post =
      channel_->begin(Command::kOp, wire::encoded_size(command), 0, rpc::Answer::kReply);
  if (!post) return lost("no command can be sent");
  wire::encode(post.writer(), command);
  if (Status called = channel_->call(std::move(post), answer); !called) {
    return lost(called.error().message);
  }
  if (!wire::decode(answer.fields(), reply)) {
    channel_->shut_down("malformed reply");
    return lost("malformed reply to " + std::string(Command::kName));
  }
  return {};
}

Error ControlClient::error_of(std::uint32_t result, std::string_view what) const {
  const auto told = [&](ErrorCode code, std::string_view why) {
    return Error{code, std::string(what) + " at " + url_ + ": " + std::string(why)};
  };
  switch (static_cast<FlytAdminResult>(result)) {
    case FLYT_ADMIN_SUCCESS:
    case FLYT_ADMIN_FAILED:
      break;
    case FLYT_ADMIN_INVALID:
      return told(ErrorCode::kInvalid, "a value is beyond what there is");
    case FLYT_ADMIN_NOT_FOUND:
      return told(ErrorCode::kNotFound, "no such session");
    case FLYT_ADMIN_IN_USE:
      return told(ErrorCode::kLimit, "more than that is used");
    case FLYT_ADMIN_UNSUPPORTED:
      return told(ErrorCode::kUnsupported, "the server cannot do that");
  }
  return told(ErrorCode::kSystem, "it failed; the server's log says why");
}

Result<LeaseState> ControlClient::describe() {
  commands::LeaseDescribe::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(commands::LeaseDescribe{}, reply, answer); !asked) return asked.error();
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "describe");
  LeaseState state;
  state.lease = reply.lease;
  state.gpu_name = reply.gpu_name;
  nvml::Gpu gpu;
  if (reply.gpu_uuid.size() == gpu.uuid.size()) {
    std::memcpy(gpu.uuid.data(), reply.gpu_uuid.data(), gpu.uuid.size());
    state.gpu_uuid = nvml::uuid_text(gpu);
  }
  state.gpu_memory = reply.gpu_memory;
  state.gpu_sms = reply.gpu_sms;
  state.memory_limit = reply.memory_limit;
  state.memory_used = reply.memory_used;
  state.context_bytes = reply.context_bytes;
  state.sms_asked = reply.sms_asked;
  state.sms_granted = reply.sms_granted;
  state.group_sms = reply.group_sms;
  state.groups = reply.groups.to_vector();
  state.sessions = reply.sessions;
  state.sessions_max = reply.sessions_max;
  state.tokens = reply.tokens;
  state.draining = reply.draining;
  state.behind = reply.behind;
  state.fixed = reply.fixed;
  state.moves = reply.moves;
  state.last_move = Duration(static_cast<std::int64_t>(reply.last_move_ns));
  return state;
}

Result<FaultsState> ControlClient::faults(std::uint64_t after) {
  commands::LeaseFaults::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(commands::LeaseFaults{.after = after}, reply, answer); !asked) {
    return asked.error();
  }
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "faults");
  FaultsState state{reply.caused, reply.suspected, reply.survived, reply.lost, {}};
  for (const FlytAdminFault& told : reply.faults.to_vector()) {
    state.newest.push_back({told.number, told.session, static_cast<std::int64_t>(told.unix_ms),
                            told.error, told.suspects, told.client_process, told.goes_on != 0,
                            text_in(told.name)});
  }
  return state;
}

Result<UseState> ControlClient::use() {
  commands::LeaseUse::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(commands::LeaseUse{}, reply, answer); !asked) return asked.error();
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "use");
  const auto time = [](std::uint64_t ns) { return Duration(static_cast<std::int64_t>(ns)); };
  return UseState{time(reply.measured_ns), time(reply.busy_ns), time(reply.queued_ns),
                  reply.launches};
}

Result<ChipState> ControlClient::chip() {
  commands::LeaseChip::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(commands::LeaseChip{}, reply, answer); !asked) return asked.error();
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "chip");
  return ChipState{reply.sms, reply.group_sms, reply.groups, reply.last_sms};
}

Result<TotalsState> ControlClient::totals() {
  commands::LeaseTotals::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(commands::LeaseTotals{}, reply, answer); !asked) return asked.error();
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "totals");
  return TotalsState{reply.posted, reply.waited, reply.received_bytes, reply.returns};
}

Result<std::vector<SessionState>> ControlClient::sessions() {
  std::vector<SessionState> all;
  commands::LeaseSessions command;
  while (true) {
    commands::LeaseSessions::Reply reply;
    rpc::Reply answer;
    if (Status asked = ask(command, reply, answer); !asked) return asked.error();
    if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "sessions");
    for (const FlytAdminSession& session : reply.sessions.to_vector()) {
      // A server that repeats itself would be asked for ever.
      if (session.number <= command.after) return error_of(FLYT_ADMIN_FAILED, "sessions");
      command.after = session.number;
      all.push_back(state_of(session));
    }
    if (reply.sessions.size() < reply.kSessionsCountMax) return all;
  }
}

Result<MemoryState> ControlClient::set_memory(std::uint64_t bytes, Shrink shrink) {
  commands::LeaseSetMemory command;
  command.bytes = bytes;
  command.when_free = shrink == Shrink::kWhenFree;
  commands::LeaseSetMemory::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(command, reply, answer); !asked) return asked.error();
  if (answer.result() == FLYT_ADMIN_IN_USE) {
    return Error{ErrorCode::kLimit,
                 size_text(reply.used) + " are used, which is more than " + size_text(bytes)};
  }
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "memory");
  return MemoryState{reply.limit, reply.used};
}

Result<SmState> ControlClient::set_sms(std::uint32_t sms, Duration patience) {
  commands::LeaseSetSms command;
  command.sms = sms;
  command.wait_ms = milliseconds_of(patience);
  commands::LeaseSetSms::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(command, reply, answer); !asked) return asked.error();
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "SMs");
  return state_of(reply);
}

Result<SmState> ControlClient::set_groups(const std::vector<std::uint32_t>& groups,
                                          Duration patience) {
  if (groups.empty() || groups.size() > commands::LeaseSetSms::kGroupsCountMax) {
    return error_of(FLYT_ADMIN_INVALID, "groups");
  }
  commands::LeaseSetSms command;
  command.groups = wire::List<std::uint32_t>(groups);
  command.wait_ms = milliseconds_of(patience);
  commands::LeaseSetSms::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(command, reply, answer); !asked) return asked.error();
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "groups");
  return state_of(reply);
}

Status ControlClient::end_session(std::uint64_t number) {
  commands::LeaseEndSession command;
  command.session = number;
  commands::LeaseEndSession::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(command, reply, answer); !asked) return asked;
  if (answer.result() == FLYT_ADMIN_SUCCESS) return {};
  return error_of(answer.result(), "session " + std::to_string(number));
}

Status ControlClient::drain(std::uint32_t seconds) {
  commands::LeaseDrain command;
  command.seconds = seconds;
  commands::LeaseDrain::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(command, reply, answer); !asked) return asked;
  if (answer.result() == FLYT_ADMIN_SUCCESS) return {};
  return error_of(answer.result(), "drain");
}

Result<std::string> ControlClient::new_token(std::uint32_t seconds, std::uint32_t sessions) {
  commands::LeaseNewToken command;
  command.seconds = seconds;
  command.sessions = sessions;
  commands::LeaseNewToken::Reply reply;
  rpc::Reply answer;
  if (Status asked = ask(command, reply, answer); !asked) return asked.error();
  if (answer.result() != FLYT_ADMIN_SUCCESS) return error_of(answer.result(), "token");
  return std::string(reply.token);
}

bool ControlClient::lost() const { return channel_->lost(); }
void ControlClient::give_up(std::string_view reason) { channel_->shut_down(reason); }
std::uint32_t ControlClient::process() const { return channel_->welcome().process_id; }

}  // namespace flyt::control
