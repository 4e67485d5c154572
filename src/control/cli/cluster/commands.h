// Commands of `flytctl` that ask a cluster: print what it said.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/cluster_client/cluster_client.h"

namespace flyt::cli {

// As they stand on the command line; empty: not given.
struct ClusterOptions {
  cluster::ClusterAddress address;
  bool json = false;
  bool watch = false;
  std::string name;  // Of a node or VM; or a file.
  std::string on;    // A node.
  std::optional<std::uint32_t> sms;
  std::optional<std::uint32_t> sms_min;
  std::optional<std::uint32_t> sms_max;
  std::string memory;
  std::optional<std::string> vm_address;
  std::optional<std::string> host;
  std::optional<std::string> policy;
  std::string mode;
  std::optional<std::int32_t> priority;
  std::vector<std::string> labels;
  std::vector<std::string> apart;
  std::optional<bool> keep;
  std::optional<bool> share_sms;
  bool force = false;
  bool follow = false;
  std::uint64_t after = 0;
};

Status cluster_describe(const ClusterOptions& options);
Status cluster_describe_one(const ClusterOptions& options);  // A VM or a node.
Status cluster_nodes(const ClusterOptions& options);
Status cluster_gpus(const ClusterOptions& options);
Status cluster_vms(const ClusterOptions& options);
Status cluster_leases(const ClusterOptions& options);
Status cluster_sessions(const ClusterOptions& options);
Status cluster_vm_set(const ClusterOptions& options);
Status cluster_vm_rm(const ClusterOptions& options);
// Of a file: JSON objects with the fields of VMs, or documents of Flyt's vm_required_resources.
Status cluster_vm_import(const ClusterOptions& options);
Status cluster_resize(const ClusterOptions& options);
Status cluster_release(const ClusterOptions& options);
Status cluster_set_node(const ClusterOptions& options, bool cordoned, bool draining);
Status cluster_node_rm(const ClusterOptions& options);
Status cluster_explain(const ClusterOptions& options);
Status cluster_events(const ClusterOptions& options);
Status cluster_audit(const ClusterOptions& options);
Status cluster_health(const ClusterOptions& options);
Status cluster_top(const ClusterOptions& options, std::uint32_t interval, std::uint32_t pages);

// Flyt's spellings.
Status flyt_list_vms(const ClusterOptions& options);
Status flyt_list_servernodes(const ClusterOptions& options);
Status flyt_list_virt_servers(const ClusterOptions& options);
// `memory` is in MB, as there.
Status flyt_change_config(const ClusterOptions& options);

}  // namespace flyt::cli
