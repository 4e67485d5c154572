// Tables: what a node said, for people.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "control/node.pb.h"

namespace flyt::cli {

// What leases have of a GPU's multiprocessors; those that two have, twice. And what there is to
// give out, which may be more than there are.
std::uint32_t sms_leased(const node::v1::Gpu& gpu);
std::uint32_t sms_given_out(const node::v1::Gpu& gpu);
// Of a GPU whose groups are not of one size: what its last one is; else empty.
std::string last_group_text(const node::v1::Gpu& gpu);

// Its leases are for the names in the map of its groups.
std::string table_of(const node::v1::NodeDescription& node,
                     const node::v1::ListLeasesResponse& leases);
std::string table_of(const node::v1::ListLeasesResponse& leases, std::int64_t now);
std::string table_of(const node::v1::ListSessionsResponse& sessions);
// One lease, a line for each thing.
std::string details_of(const node::v1::Lease& lease, std::int64_t now);
std::string line_of(const node::v1::Event& event);
// One page of `flytctl top`.
std::string top_of(const node::v1::NodeDescription& node,
                   const node::v1::ListLeasesResponse& leases, std::int64_t now);
// Settings for a shell: FLYT_SERVER and FLYT_TOKEN. `tcp`: the address for other machines,
// and an error if there is none.
Result<std::string> exports_of(const node::v1::Token& token, bool tcp);
std::string details_of(const node::v1::Token& token, std::int64_t now);

}  // namespace flyt::cli
