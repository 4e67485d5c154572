#include "control/cli/node/commands.h"

#include <unistd.h>

#include <iostream>

#include "base/clock.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "control/cli/node/tables.h"
#include "control/json/message_json.h"

namespace flyt::cli {
namespace {

using control::json_of;
namespace v1 = node::v1;

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }

// Asks, and prints the answer as JSON or as `text` makes it.
template <class Ask, class Text>
Status print(const CtlOptions& options, Ask ask, Text text) {
  const auto client = NodeClient::connect(options.address);
  if (!client) return client.error();
  const auto reply = ask(**client);
  if (!reply) return reply.error();
  std::cout << (options.json ? json_of(*reply) : text(*reply)) << std::flush;
  return {};
}

std::string lease_text(const v1::Lease& lease) { return details_of(lease, unix_seconds()); }

Result<v1::CreateLeaseRequest> create_request(const CtlOptions& options) {
  v1::CreateLeaseRequest request;
  request.set_name(options.lease);
  request.set_sms(options.sms.value_or(0));
  if (options.gpu) request.set_gpu(*options.gpu);
  request.set_priority(options.priority);
  if (options.mode == "isolated") request.set_mode(v1::MODE_ISOLATED);
  if (options.mode == "shared") request.set_mode(v1::MODE_SHARED);
  const auto memory = parse_size(options.memory);
  if (!memory) return memory.error();
  request.set_memory_bytes(*memory);
  if (!options.expires_in.empty()) {
    const auto seconds = parse_seconds(options.expires_in);
    if (!seconds) return seconds.error();
    request.set_expires_at(unix_seconds() + static_cast<std::int64_t>(*seconds));
  }
  for (const std::string& label : options.labels) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid("--label takes KEY=VALUE, not '" + label + "'");
    }
    (*request.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return request;
}

// {"node": what describe says, "leases": [...]}
std::string top_json(const std::string& node, const std::string& leases) {
  return "{\"node\":" + node.substr(0, node.rfind('}') + 1) + "," + leases.substr(1);
}

}  // namespace

int exit_status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return kExitUsage;
    case ErrorCode::kLost:
    case ErrorCode::kTimeout:
      return kExitUnreachable;
    case ErrorCode::kNotFound:
      return kExitNotFound;
    case ErrorCode::kLimit:
      return kExitNoRoom;
    case ErrorCode::kDenied:
    case ErrorCode::kUnsupported:
      return kExitRefused;
    case ErrorCode::kSystem:
      return kExitFailed;
  }
  return kExitFailed;
}

Status ctl_describe(const CtlOptions& options) {
  if (!options.lease.empty()) {
    return print(
        options, [&](NodeClient& node) { return node.lease(options.lease); }, lease_text);
  }
  v1::ListLeasesResponse leases;
  const auto describe = [&](NodeClient& node) -> Result<v1::NodeDescription> {
    auto described = node.describe();
    if (!described || options.json) return described;
    auto there = node.leases();
    if (!there) return std::move(there).error();
    leases = std::move(*there);
    return described;
  };
  return print(options, describe,
               [&](const v1::NodeDescription& node) { return table_of(node, leases); });
}

Status ctl_leases(const CtlOptions& options) {
  return print(
      options, [](NodeClient& node) { return node.leases(); },
      [](const v1::ListLeasesResponse& leases) { return table_of(leases, unix_seconds()); });
}

Status ctl_create(const CtlOptions& options) {
  const auto request = create_request(options);
  if (!request) return request.error();
  return print(
      options, [&](NodeClient& node) { return node.create(*request); }, lease_text);
}

Status ctl_resize(const CtlOptions& options) {
  v1::ResizeLeaseRequest request;
  request.set_lease(options.lease);
  if (options.sms) request.set_sms(*options.sms);
  if (!options.memory.empty()) {
    const auto memory = parse_size(options.memory);
    if (!memory) return memory.error();
    request.set_memory_bytes(*memory);
  }
  if (!options.sms && options.memory.empty())
    return invalid("resize takes --sms, --memory or both");
  if (options.when_free && (options.sms || options.memory.empty())) {
    return invalid("--when-free is for --memory alone");
  }
  request.set_when_free(options.when_free);
  return print(
      options, [&](NodeClient& node) { return node.resize(request); }, lease_text);
}

Status ctl_defrag(const CtlOptions& options) {
  return print(
      options, [](NodeClient& node) { return node.defragment(); },
      [](const v1::ListLeasesResponse& leases) {
        return leases.leases_size() == 0 ? std::string("nothing to move\n")
                                         : table_of(leases, unix_seconds());
      });
}

Status ctl_release(const CtlOptions& options) {
  v1::ReleaseLeaseRequest request;
  request.set_lease(options.lease);
  return print(
      options, [&](NodeClient& node) { return node.release(request); },
      [](const v1::Lease& lease) { return "released " + lease.name() + "\n"; });
}

Status ctl_sessions(const CtlOptions& options) {
  return print(
      options, [&](NodeClient& node) { return node.sessions(options.lease); },
      [](const v1::ListSessionsResponse& sessions) { return table_of(sessions); });
}

Status ctl_token(const CtlOptions& options) {
  std::uint64_t seconds = 0;
  if (!options.lasts.empty()) {
    const auto wished = parse_seconds(options.lasts);
    if (!wished) return wished.error();
    if (*wished == 0 || *wished > UINT32_MAX) return invalid("--lasts takes 1 second or more");
    seconds = *wished;
  }
  const auto client = NodeClient::connect(options.address);
  if (!client) return client.error();
  const auto token = (*client)->token(options.lease, static_cast<std::uint32_t>(seconds));
  if (!token) return token.error();
  Result<std::string> text = details_of(*token, unix_seconds());
  if (options.exports) text = exports_of(*token, options.tcp);
  if (options.json) text = json_of(*token);
  if (!text) return text.error();
  std::cout << *text << std::flush;
  return {};
}

Status ctl_forget_leaders(const CtlOptions& options) {
  return print(
      options, [](NodeClient& node) { return node.forget_leaders(); },
      [](const v1::ForgetLeadersResponse& reply) {
        return "forgotten: those of " + std::to_string(reply.clusters()) + " clusters\n";
      });
}

Status ctl_drain(const CtlOptions& options, bool on) {
  return print(
      options, [on](NodeClient& node) { return node.drain(on); },
      [](const v1::DrainResponse& reply) {
        return (reply.draining() ? "draining, " : "open, ") + counted(reply.leases(), "lease") +
               "\n";
      });
}

Status ctl_events(const CtlOptions& options) {
  const auto client = NodeClient::connect(options.address);
  if (!client) return client.error();
  return (*client)->events(options.after, options.follow, [&](const v1::Event& event) {
    std::cout << (options.json ? json_of(event) : line_of(event)) << std::flush;
    return static_cast<bool>(std::cout);
  });
}

// On a terminal each page replaces the last one.
Status ctl_top(const CtlOptions& options) {
  const auto client = NodeClient::connect(options.address);
  if (!client) return client.error();
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  for (std::uint32_t page = 0; options.pages == 0 || page < options.pages; ++page) {
    if (page != 0) system_clock().sleep_for(std::chrono::seconds(options.interval));
    const auto node = (*client)->describe();
    if (!node) return node.error();
    const auto leases = (*client)->leases();
    if (!leases) return leases.error();
    if (options.json) {
      std::cout << top_json(json_of(*node), json_of(*leases));
    } else {
      std::cout << (terminal    ? "\x1b[H\x1b[2J"
                    : page == 0 ? ""
                                : "\n")
                << top_of(*node, *leases, unix_seconds());
    }
    std::cout << std::flush;
    if (!std::cout) break;
  }
  return {};
}

Status ctl_health(const CtlOptions& options) {
  bool healthy = true;
  Status status = print(
      options,
      [&](NodeClient& node) {
        auto health = node.health();
        if (health) healthy = health->healthy();
        return health;
      },
      [](const v1::HealthStatus& health) {
        std::string text = health.healthy() ? "healthy\n" : "";
        for (const std::string& problem : health.problems()) text += problem + "\n";
        return text;
      });
  if (status && !healthy) return Error{ErrorCode::kSystem, "the node is not healthy"};
  return status;
}

}  // namespace flyt::cli
