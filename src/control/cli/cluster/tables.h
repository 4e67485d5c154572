// Tables: what a cluster manager said, for people.
#pragma once

#include <cstdint>
#include <string>

#include "control/cluster.pb.h"

namespace flyt::cli {

std::string text_of(const cluster::v1::ClusterDescription& all);
std::string nodes_table(const cluster::v1::ListNodesResponse& nodes, std::int64_t now_ms);
std::string gpus_table(const cluster::v1::ListNodesResponse& nodes);
std::string vms_table(const cluster::v1::ListVmsResponse& vms);
std::string leases_table(const cluster::v1::ListClusterLeasesResponse& leases);
std::string sessions_table(const cluster::v1::ListClusterSessionsResponse& sessions);
std::string audit_table(const cluster::v1::ListAuditResponse& audit);
// One node with its GPUs, one VM: a line for each thing.
std::string details_of(const cluster::v1::Node& node, std::int64_t now_ms);
std::string details_of(const cluster::v1::Vm& vm);
std::string text_of(const cluster::v1::Explanation& explanation);
std::string line_of(const cluster::v1::ClusterEvent& event);
std::string phase_text(const cluster::v1::VirtualGpu& gpu);

// With the columns of Flyt's flytctl.
std::string flyt_vms_table(const cluster::v1::ListVmsResponse& vms);
std::string flyt_servernodes_table(const cluster::v1::ListNodesResponse& nodes);
std::string flyt_virt_servers_table(const cluster::v1::ListClusterLeasesResponse& leases,
                                    const cluster::v1::ListVmsResponse& vms);

}  // namespace flyt::cli
