#include "bin/flytctl_commands.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "control/settings/settings.h"

namespace flyt::ctl {
namespace {

constexpr const char* kClusterSocket = "unix:///run/flyt-cluster/cluster.sock";
constexpr const char* kNodeSocket = "unix:///run/flyt/node.sock";

constexpr std::array kNodeOnly = {"create", "token", "undrain", "defrag", "forget-leaders"};
constexpr std::array kNeither = {"ca", "config", "enrol", "renew"};
constexpr std::array kEither = {"describe", "leases", "resize", "release", "sessions",
                                "drain",    "events", "top",    "health"};

struct Place {
  std::string address;
  std::string cert;
  std::string key;
  std::string ca;
};

struct Settings {
  Place cluster;
  Place node;
};

std::string from_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

void fill(std::string& value, const std::string& otherwise) {
  if (value.empty()) value = otherwise;
}

Result<Settings> read_settings_of(const Options& options) {
  Settings settings;
  std::string path = options.config;
  fill(path, from_environment("FLYTCTL_CONFIG"));
  const std::string home = from_environment("HOME");
  for (const std::string& usual :
       {home + "/.config/flyt/flytctl.toml", std::string("/etc/flyt/flytctl.toml")}) {
    if (path.empty() && ::access(usual.c_str(), R_OK) == 0) path = usual;
  }
  if (path.empty()) return settings;
  const auto keys_of = [](Place& place) -> control::SettingKeys {
    return {{"address", control::text_setting(place.address)},
            {"cert", control::path_setting(place.cert)},
            {"key", control::path_setting(place.key)},
            {"ca", control::path_setting(place.ca)}};
  };
  Status status = control::read_settings(
      path, {{"cluster", keys_of(settings.cluster)}, {"node", keys_of(settings.node)}});
  if (!status) return status.error();
  return settings;
}

// Flags first, then the environment, then the file.
void complete(Place& place, const std::string& flag, const Options& options,
              const std::string& front) {
  Place settled{flag, options.cert, options.key, options.ca};
  fill(settled.address, from_environment(front));
  fill(settled.cert, from_environment(front + "_CERT"));
  fill(settled.key, from_environment(front + "_KEY"));
  fill(settled.ca, from_environment(front + "_CA"));
  fill(settled.address, place.address);
  fill(settled.cert, place.cert);
  fill(settled.key, place.key);
  fill(settled.ca, place.ca);
  place = settled;
}

template <std::size_t Size>
bool has(const std::array<const char*, Size>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void share(Options& options) {
  cli::ClusterOptions& cluster = options.cluster;
  cluster.json = options.authority.json = options.configs.json = options.node.json;
  options.enrol.json = options.node.json;
  if (cluster.name.empty()) cluster.name = options.node.lease;
  if (!cluster.sms) cluster.sms = options.node.sms;
  if (cluster.memory.empty()) cluster.memory = options.node.memory;
  cluster.follow = options.node.follow;
  cluster.after = std::max(cluster.after, options.node.after);
}

// An address that would be passed over: another than the one that was named would be asked.
Status check_flags(const Options& options, const std::string& command) {
  const auto invalid = [](const std::string& message) {
    return Error{ErrorCode::kInvalid, message};
  };
  if (!options.cluster_flag.empty() && !options.node_flag.empty()) {
    return invalid("--cluster and --node exclude each other");
  }
  if (has(kEither, command) || has(kNeither, command)) return {};
  if (has(kNodeOnly, command)) {
    if (options.cluster_flag.empty()) return {};
    return invalid(command + " asks a node: name it with --node, not with --cluster");
  }
  if (options.node_flag.empty()) return {};
  return invalid(command + " asks a cluster: name it with --cluster, not with --node");
}

Error refused(const std::string& message) { return {ErrorCode::kUnsupported, message}; }

Status run_node(const std::string& command, const Options& options) {
  const cli::CtlOptions& node = options.node;
  if (options.cluster.watch || !options.cluster.on.empty()) {
    return Error{ErrorCode::kInvalid, "--watch and --on ask a cluster: name it with --cluster"};
  }
  if (command == "leases" && !node.lease.empty()) {
    return Error{ErrorCode::kInvalid,
                 "leases VM asks a cluster: name it with --cluster; describe LEASE shows one of a"
                 " node"};
  }
  if (command == "drain" && !node.lease.empty()) {
    return Error{ErrorCode::kInvalid,
                 "drain NODE asks a cluster: name it with --cluster; a node drains itself"};
  }
  if (command == "describe") return cli::ctl_describe(node);
  if (command == "leases") return cli::ctl_leases(node);
  if (command == "create") return cli::ctl_create(node);
  if (command == "resize") return cli::ctl_resize(node);
  if (command == "defrag") return cli::ctl_defrag(node);
  if (command == "release") return cli::ctl_release(node);
  if (command == "sessions") return cli::ctl_sessions(node);
  if (command == "token") return cli::ctl_token(node);
  if (command == "drain") return cli::ctl_drain(node, true);
  if (command == "forget-leaders") return cli::ctl_forget_leaders(node);
  if (command == "undrain") return cli::ctl_drain(node, false);
  if (command == "events") return cli::ctl_events(node);
  if (command == "top") return cli::ctl_top(node);
  return cli::ctl_health(node);
}

Status run_flyt(const std::string& command, const cli::ClusterOptions& options) {
  if (command == "list-vms") return cli::flyt_list_vms(options);
  if (command == "list-servernodes") return cli::flyt_list_servernodes(options);
  if (command == "list-virt-servers") return cli::flyt_list_virt_servers(options);
  if (command == "change-config") return cli::flyt_change_config(options);
  return refused(command +
                 ": virtual GPUs cannot be moved to another node yet; release it, and the"
                 " next program gets one wherever there is room");
}

Status run_nested(const std::string& group, const std::string& command, const Options& options) {
  if (group == "ca") {
    cli::AuthorityOptions authority = options.authority;
    if (authority.name.empty()) authority.name = "flyt";
    if (command == "init") return cli::ca_init(authority);
    if (command == "issue") return cli::ca_issue(authority);
    return cli::ca_revoke(authority);
  }
  if (group == "enrol-token") {
    if (command == "create") return cli::enrol_token_create(options.enrol);
    if (command == "list") return cli::enrol_token_list(options.enrol);
    return cli::enrol_token_revoke(options.enrol);
  }
  if (group == "config") {
    return command == "check" ? cli::config_check(options.configs)
                              : cli::config_import(options.configs);
  }
  if (group == "node") return cli::cluster_node_rm(options.cluster);
  if (command == "set") return cli::cluster_vm_set(options.cluster);
  if (command == "rm") return cli::cluster_vm_rm(options.cluster);
  return cli::cluster_vm_import(options.cluster);
}

Status run_cluster(const std::string& command, const Options& options) {
  const cli::ClusterOptions& cluster = options.cluster;
  if (command == "describe" && cluster.name.empty()) return cli::cluster_describe(cluster);
  if (command == "describe") return cli::cluster_describe_one(cluster);
  if (command == "nodes") return cli::cluster_nodes(cluster);
  if (command == "gpus") return cli::cluster_gpus(cluster);
  if (command == "vms") return cli::cluster_vms(cluster);
  if (command == "leases") return cli::cluster_leases(cluster);
  if (command == "sessions") return cli::cluster_sessions(cluster);
  if (command == "resize" && options.node.when_free) {
    return Error{ErrorCode::kInvalid, "--when-free is for leases of a node: name it with --node"};
  }
  if (command == "resize") return cli::cluster_resize(cluster);
  if (command == "release") return cli::cluster_release(cluster);
  if (command == "explain") return cli::cluster_explain(cluster);
  if (command == "events") return cli::cluster_events(cluster);
  if (command == "audit") return cli::cluster_audit(cluster);
  if (command == "health") return cli::cluster_health(cluster);
  if (command == "enrol") return cli::enrol(options.enrol);
  if (command == "renew") return cli::renew(options.enrol);
  if (command == "top") return cli::cluster_top(cluster, options.node.interval, options.node.pages);
  if (cluster.name.empty()) {
    return Error{ErrorCode::kInvalid, command + " takes the name of a node"};
  }
  if (command == "drain") return cli::cluster_set_node(cluster, true, true);
  if (command == "cordon") return cli::cluster_set_node(cluster, true, false);
  return cli::cluster_set_node(cluster, false, false);
}

}  // namespace

Result<bool> settle(const Command& command, Options& options) {
  share(options);
  auto settings = read_settings_of(options);
  if (!settings) return std::move(settings).error();
  const std::string name = command.name();
  if (Status flags = check_flags(options, name); !flags) return flags.error();
  complete(settings->cluster, options.cluster_flag, options, "FLYT_CLUSTER");
  complete(settings->node, options.node_flag, options, "FLYT_NODE");
  bool cluster = !has(kNodeOnly, name);
  if (has(kEither, name)) {
    const bool here = ::access(std::string(kClusterSocket).substr(7).c_str(), F_OK) == 0;
    const bool wished = !options.cluster_flag.empty() || !settings->cluster.address.empty();
    const bool other =
        !options.node_flag.empty() || (!wished && (!settings->node.address.empty() || !here));
    cluster = !other;
  }
  fill(settings->cluster.address, kClusterSocket);
  fill(settings->node.address, kNodeSocket);
  const Place& where = settings->cluster;
  options.cluster.address = {where.address, where.cert, where.key, where.ca};
  options.enrol.address = options.cluster.address;
  const Place& node = settings->node;
  options.node.address = {node.address, node.cert, node.key, node.ca};
  return cluster;
}

Status run(const Command& command, Options& options) {
  const auto cluster = settle(command, options);
  if (!cluster) return cluster.error();
  const std::string name = command.name();
  const auto nested = command.given_commands();
  if (!nested.empty()) return run_nested(name, nested.front().name(), options);
  if (name.starts_with("list-") || name == "change-config" || name.starts_with("migrate")) {
    return run_flyt(name, options.cluster);
  }
  return *cluster ? run_cluster(name, options) : run_node(name, options);
}

}  // namespace flyt::ctl
