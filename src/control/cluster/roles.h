// Roles: who may do what in a cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace flyt::cluster {

// Of people, each with what those before it may do; then of machines, which do their own only.
enum class Role : std::uint8_t { kViewer, kOperator, kAdmin, kNode, kVm };
std::string_view to_string(Role role);
std::optional<Role> role_of(std::string_view text);

struct Caller {
  std::string name;  // The certificate's, or "unix-UID".
  Role role = Role::kViewer;
  std::string peer;  // For logs.
};

// Whether the caller has at least this role; an admin may also do what nodes and VMs do.
Status need(const Caller& caller, Role least);

// The node or VM that the caller means by `named`, which may be empty: machines are who they are,
// an admin has to say. kDenied: it is somebody else.
Result<std::string> self_of(const Caller& caller, Role machine, const std::string& named);

}  // namespace flyt::cluster
