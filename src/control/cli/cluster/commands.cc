#include "control/cli/cluster/commands.h"

#include <unistd.h>

#include <iostream>

#include "base/clock.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "control/cli/cluster/import.h"
#include "control/cli/cluster/tables.h"
#include "control/json/message_json.h"
#include "control/settings/settings.h"

namespace flyt::cli {
namespace {

using control::json_of;
namespace v1 = cluster::v1;
using cluster::ClusterClient;

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }

// Asks, and prints the answer as JSON or as `text` makes it; with --watch again after each change.
template <class Ask, class Text>
Status print(const ClusterOptions& options, Ask ask, Text text) {
  const auto client = ClusterClient::connect(options.address);
  if (!client) return client.error();
  const bool terminal = options.watch && !options.json && ::isatty(STDOUT_FILENO) == 1;
  const auto once = [&]() -> Status {
    const auto reply = ask(**client);
    if (!reply) return reply.error();
    if (terminal) std::cout << "\x1b[H\x1b[2J";
    std::cout << (options.json ? json_of(*reply) : text(*reply)) << std::flush;
    return {};
  };
  if (!options.watch) return once();
  Status status;
  Status stream = (*client)->watch([&] {
    status = once();
    return status.ok() && std::cout;
  });
  return status ? stream : status;
}

Result<std::uint64_t> size_of(const std::string& text) { return parse_size(text); }

Status add_labels(const ClusterOptions& options, v1::VmSpec& spec) {
  for (const std::string& label : options.labels) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid("--label takes KEY=VALUE, not '" + label + "'");
    }
    (*spec.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  for (const std::string& key : options.apart) spec.add_apart(key);
  return {};
}

// What is given changes, all else stays.
Result<v1::SetVmsRequest> set_request(const ClusterOptions& options) {
  v1::SetVmsRequest request;
  v1::VmSpec& spec = *request.add_vms();
  spec.set_name(options.name);
  const auto field = [&request](const char* name) { request.add_fields(name); };
  if (options.sms) {
    spec.set_sms(*options.sms);
    field("sms");
  }
  if (options.sms_min) {
    spec.set_sms_min(*options.sms_min);
    field("sms_min");
  }
  if (options.sms_max) {
    spec.set_sms_max(*options.sms_max);
    field("sms_max");
  }
  if (!options.memory.empty()) {
    const auto memory = size_of(options.memory);
    if (!memory) return memory.error();
    spec.set_memory_bytes(*memory);
    field("memory_bytes");
  }
  if (options.vm_address) {
    spec.set_address(*options.vm_address);
    field("address");
  }
  if (options.host) {
    spec.set_host(*options.host);
    field("host");
  }
  if (options.policy) {
    spec.set_policy(*options.policy == "default" ? "" : *options.policy);
    field("policy");
  }
  if (!options.mode.empty()) {
    if (options.mode == "isolated") spec.set_mode(node::v1::MODE_ISOLATED);
    if (options.mode == "shared") spec.set_mode(node::v1::MODE_SHARED);
    field("mode");
  }
  if (options.priority) {
    spec.set_priority(*options.priority);
    field("priority");
  }
  if (Status status = add_labels(options, spec); !status) return status.error();
  if (!options.labels.empty()) field("labels");
  if (!options.apart.empty()) field("apart");
  if (options.keep) {
    spec.set_keep(*options.keep);
    field("keep");
  }
  if (options.share_sms) {
    spec.set_share_sms(*options.share_sms);
    field("share_sms");
  }
  if (request.fields_size() == 0) return invalid("vm set takes what is to be set; see --help");
  return request;
}

// Two objects as one.
std::string both(const std::string& first, const std::string& second) {
  return first.substr(0, first.rfind('}')) + "," + second.substr(1);
}

Status resize_to(const ClusterOptions& options, std::optional<std::uint64_t> memory) {
  v1::ResizeVmRequest request;
  request.set_vm(options.name);
  if (options.sms) request.set_sms(*options.sms);
  if (memory) request.set_memory_bytes(*memory);
  if (!options.sms && !memory) return invalid("it takes multiprocessors, memory or both");
  return print(
      options, [&](ClusterClient& client) { return client.resize(request); },
      [](const v1::Vm& vm) { return details_of(vm); });
}

}  // namespace

Status cluster_describe(const ClusterOptions& options) {
  return print(
      options, [](ClusterClient& client) { return client.describe(); },
      [](const v1::ClusterDescription& all) { return text_of(all); });
}

Status cluster_describe_one(const ClusterOptions& options) {
  const auto client = ClusterClient::connect(options.address);
  if (!client) return client.error();
  const auto vms = (*client)->vms(options.name);
  if (vms) return cluster_vms(options);
  if (vms.error().code != ErrorCode::kNotFound) return vms.error();
  const auto nodes = (*client)->nodes(options.name);
  if (nodes) return cluster_nodes(options);
  if (nodes.error().code != ErrorCode::kNotFound) return nodes.error();
  return Error{ErrorCode::kNotFound, "there is no VM and no node " + options.name +
                                         "; flytctl vms and flytctl nodes list them"};
}

Status cluster_nodes(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.nodes(options.name); },
      [&](const v1::ListNodesResponse& nodes) {
        return options.name.empty() ? nodes_table(nodes, unix_milliseconds())
                                    : details_of(nodes.nodes(0), unix_milliseconds());
      });
}

Status cluster_gpus(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.nodes(options.name); },
      [](const v1::ListNodesResponse& nodes) { return gpus_table(nodes); });
}

Status cluster_vms(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.vms(options.name); },
      [&](const v1::ListVmsResponse& vms) {
        return options.name.empty() ? vms_table(vms) : details_of(vms.vms(0));
      });
}

Status cluster_leases(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.leases(options.name, options.on); },
      [](const v1::ListClusterLeasesResponse& leases) { return leases_table(leases); });
}

Status cluster_sessions(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.sessions(options.name, options.on); },
      [](const v1::ListClusterSessionsResponse& sessions) { return sessions_table(sessions); });
}

Status cluster_vm_set(const ClusterOptions& options) {
  const auto request = set_request(options);
  if (!request) return request.error();
  return print(
      options, [&](ClusterClient& client) { return client.set_vms(*request); },
      [](const v1::ListVmsResponse& vms) { return details_of(vms.vms(0)); });
}

Status cluster_vm_rm(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.remove_vm(options.name, options.force); },
      [](const v1::Vm& vm) { return "removed " + vm.spec().name() + "\n"; });
}

Status cluster_vm_import(const ClusterOptions& options) {
  const auto text = control::read_file(options.name);
  if (!text) return text.error();
  const auto request = vms_of(*text, options.name);
  if (!request) return request.error();
  return print(
      options, [&](ClusterClient& client) { return client.set_vms(*request); },
      [](const v1::ListVmsResponse& vms) {
        return "set " + counted(static_cast<std::uint64_t>(vms.vms_size()), "VM") + "\n";
      });
}

Status cluster_resize(const ClusterOptions& options) {
  if (options.memory.empty()) return resize_to(options, std::nullopt);
  const auto memory = size_of(options.memory);
  if (!memory) return memory.error();
  return resize_to(options, *memory);
}

Status cluster_release(const ClusterOptions& options) {
  v1::Phase before = v1::PHASE_NONE;
  const auto release = [&](ClusterClient& client) -> Result<v1::Vm> {
    const auto vms = client.vms(options.name);
    if (!vms) return vms.error();
    const v1::Vm& vm = vms->vms(0);
    before = vm.gpu().phase();
    if (before != v1::PHASE_NONE) return client.release_vm(options.name);
    return Error{ErrorCode::kNotFound,
                 "VM " + vm.spec().name() + " holds no virtual GPU, and waits for none"};
  };
  return print(options, release, [&](const v1::Vm& vm) {
    return before == v1::PHASE_WAITING
               ? "VM " + vm.spec().name() + " held no virtual GPU; it waits for one no longer\n"
               : "released the virtual GPU of " + vm.spec().name() + "\n";
  });
}

Status cluster_set_node(const ClusterOptions& options, bool cordoned, bool draining) {
  v1::SetNodeRequest request;
  request.set_node(options.name);
  request.set_cordoned(cordoned);
  request.set_draining(draining);
  return print(
      options, [&](ClusterClient& client) { return client.set_node(request); },
      [](const v1::Node& node) {
        return std::string(node.draining()   ? "draining, "
                           : node.cordoned() ? "cordoned, "
                                             : "open, ") +
               counted(node.leases(), "lease") + "\n";
      });
}

Status cluster_node_rm(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.remove_node(options.name); },
      [](const v1::Node& node) { return "removed " + node.name() + "\n"; });
}

Status cluster_explain(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.explain(options.name); },
      [](const v1::Explanation& explanation) { return text_of(explanation); });
}

Status cluster_events(const ClusterOptions& options) {
  const auto client = ClusterClient::connect(options.address);
  if (!client) return client.error();
  return (*client)->events(options.after, options.follow, [&](const v1::ClusterEvent& event) {
    std::cout << (options.json ? json_of(event) : line_of(event)) << std::flush;
    return static_cast<bool>(std::cout);
  });
}

Status cluster_audit(const ClusterOptions& options) {
  return print(
      options, [&](ClusterClient& client) { return client.audit(options.after); },
      [](const v1::ListAuditResponse& audit) { return audit_table(audit); });
}

Status cluster_health(const ClusterOptions& options) {
  bool healthy = true;
  Status status = print(
      options,
      [&](ClusterClient& client) {
        auto health = client.health();
        if (health) healthy = health->healthy();
        return health;
      },
      [](const v1::ClusterHealth& health) {
        std::string text = health.healthy() ? "healthy\n" : "";
        for (const std::string& problem : health.problems()) text += problem + "\n";
        return text;
      });
  if (status && !healthy) return Error{ErrorCode::kSystem, "the cluster is not healthy"};
  return status;
}

Status cluster_top(const ClusterOptions& options, std::uint32_t interval, std::uint32_t pages) {
  const auto client = ClusterClient::connect(options.address);
  if (!client) return client.error();
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  for (std::uint32_t page = 0; pages == 0 || page < pages; ++page) {
    if (page != 0) system_clock().sleep_for(std::chrono::seconds(interval));
    const auto nodes = (*client)->nodes("");
    if (!nodes) return nodes.error();
    const auto vms = (*client)->vms("");
    if (!vms) return vms.error();
    if (options.json) {
      std::cout << both(json_of(*nodes), json_of(*vms));
    } else {
      std::cout << (terminal    ? "\x1b[H\x1b[2J"
                    : page == 0 ? ""
                                : "\n")
                << gpus_table(*nodes) << "\n"
                << vms_table(*vms);
    }
    std::cout << std::flush;
    if (!std::cout) break;
  }
  return {};
}

Status flyt_list_vms(const ClusterOptions& options) {
  return print(
      options, [](ClusterClient& client) { return client.vms(""); },
      [](const v1::ListVmsResponse& vms) { return flyt_vms_table(vms); });
}

Status flyt_list_servernodes(const ClusterOptions& options) {
  return print(
      options, [](ClusterClient& client) { return client.nodes(""); },
      [](const v1::ListNodesResponse& nodes) { return flyt_servernodes_table(nodes); });
}

Status flyt_list_virt_servers(const ClusterOptions& options) {
  v1::ListVmsResponse vms;
  return print(
      options,
      [&](ClusterClient& client) -> Result<v1::ListClusterLeasesResponse> {
        auto all = client.vms("");
        if (!all) return all.error();
        vms = std::move(*all);
        return client.leases("", "");
      },
      [&](const v1::ListClusterLeasesResponse& leases) {
        return flyt_virt_servers_table(leases, vms);
      });
}

Status flyt_change_config(const ClusterOptions& options) {
  if (options.memory.empty()) return resize_to(options, std::nullopt);
  const auto megabytes = parse_size(options.memory);
  if (!megabytes || *megabytes > UINT32_MAX) {
    return invalid("-m takes megabytes, not '" + options.memory + "'");
  }
  return resize_to(options, *megabytes << 20);
}

}  // namespace flyt::cli
