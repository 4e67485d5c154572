#include "control/cluster/roles.h"

namespace flyt::cluster {

std::string_view to_string(Role role) {
  switch (role) {
    case Role::kViewer:
      return "viewer";
    case Role::kOperator:
      return "operator";
    case Role::kAdmin:
      return "admin";
    case Role::kNode:
      return "node";
    case Role::kVm:
      return "vm";
  }
  return "viewer";
}

std::optional<Role> role_of(std::string_view text) {
  for (const Role role : {Role::kViewer, Role::kOperator, Role::kAdmin, Role::kNode, Role::kVm}) {
    if (text == to_string(role)) return role;
  }
  return std::nullopt;
}

namespace {

constexpr std::size_t kNamedBytesMax = 256;

Error denied(const Caller& caller, std::string_view least) {
  return {ErrorCode::kDenied, caller.name + " has the role " + std::string(to_string(caller.role)) +
                                  "; this needs " + std::string(least)};
}

}  // namespace

Status need(const Caller& caller, Role least) {
  if (caller.role == Role::kAdmin || caller.role == least) return {};
  switch (least) {
    case Role::kViewer:
      if (caller.role == Role::kOperator) return {};
      break;
    case Role::kOperator:
    case Role::kAdmin:
    case Role::kNode:
    case Role::kVm:
      break;
  }
  return denied(caller, to_string(least));
}

Result<std::string> self_of(const Caller& caller, Role machine, const std::string& named) {
  if (Status status = need(caller, machine); !status) return status.error();
  // Whatever is refused is told and logged.
  if (named.size() > kNamedBytesMax) {
    return Error{ErrorCode::kInvalid, "no " + std::string(to_string(machine)) +
                                          " has a name of more than " +
                                          std::to_string(kNamedBytesMax) + " bytes"};
  }
  if (caller.role == Role::kAdmin) {
    if (!named.empty()) return named;
    return Error{ErrorCode::kInvalid,
                 "the " + std::string(to_string(machine)) + " is to be named: an admin is none"};
  }
  if (named.empty() || named == caller.name) return caller.name;
  return Error{ErrorCode::kDenied, caller.name + " may not speak for " + named};
}

}  // namespace flyt::cluster
