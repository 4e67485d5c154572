// Records: what nodes and operators say, checked, and as placement wants it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/cluster.pb.h"
#include "control/cluster/placement/facts.h"
#include "control/cluster/roles.h"
#include "control/cluster_state.pb.h"

namespace flyt::cluster {

inline constexpr std::size_t kVmNameBytesMax = 40;  // A lease's name has more behind it.
inline constexpr std::size_t kVmsMax = 100000;
inline constexpr std::size_t kNodeNameBytesMax = 64;
inline constexpr std::size_t kTextBytesMax = 256;
inline constexpr std::size_t kReasonBytesMax = 1024;  // Why something was done, or was not.
inline constexpr std::size_t kVmLabelsMax = 48;
inline constexpr std::uint64_t kVmMemoryMin = 16ull << 20;
inline constexpr std::uint64_t kVmMemoryMax = 1ull << 42;
inline constexpr std::uint32_t kVmSmsMax = 4096;
inline constexpr int kReportGpusMax = 64;
inline constexpr int kReportLeasesMax = 4096;
inline constexpr int kReportProblemsMax = 256;
inline constexpr std::size_t kReportLeaseBytesMax = 64 << 10;
inline constexpr std::size_t kGrantIdBytesMax = 64;
inline constexpr std::size_t kReportBytesMax = 4 << 20;
inline constexpr std::size_t kProblemBytesMax = 1024;

// How leases are marked on their nodes.
inline constexpr const char* kClusterLabel = "flyt/cluster";
inline constexpr const char* kVmLabel = "flyt/vm";
inline constexpr const char* kGrantLabel = "flyt/grant";

// Letters, digits, '-', '_' and '.', no '-' in front. `what` is for the error: "a VM's name".
Status check_name(std::string_view what, std::string_view name, std::size_t bytes_max);
Status check_spec(const v1::VmSpec& spec);
// As events tell it.
std::string text_of(const v1::VmSpec& spec);
// Sets of `spec` the fields that are named, as they are in `wanted`. kInvalid: there is no such
// one.
Status merge(const v1::VmSpec& wanted,
             const google::protobuf::RepeatedPtrField<std::string>& fields, v1::VmSpec& spec);

v1::Role message_of(Role role);

Status check_request(const v1::GpuRequest& request);
// Also that figures do not contradict themselves.
Status check_report(const v1::NodeReport& report);
// What of it outlives the node's report: no holders, nothing that changes with leases.
state::NodeRecord record_of(const v1::NodeReport& report, const state::NodeRecord& before);

placement::NodeFacts facts_of(const state::NodeRecord& record);
// As placement counts it: `id` is the grant's, or NODE/LEASE of one that is not the cluster's.
placement::HeldLease held_of(const std::string& id, const state::NodeRecord& node,
                             const node::v1::Lease& lease);
placement::Request request_of(const v1::VmSpec& spec, const std::string& id,
                              std::string_view default_policy);
std::vector<placement::Apart> apart_of(const v1::VmSpec& spec);

std::string lease_name_of(const std::string& vm, const std::string& grant);
node::v1::CreateLeaseRequest create_request_of(const v1::VmSpec& spec, const state::Grant& grant,
                                               const std::string& cluster);
// A label of a lease; empty if it has none.
std::string label_of(const node::v1::Lease& lease, const char* key);

// What a node is shown to have, until it reports again: with a lease more, or less.
void show_lease(const node::v1::Lease& lease, bool there, node::v1::NodeDescription& node);

// 16 hexadecimal digits by chance.
std::string new_id();

}  // namespace flyt::cluster
