#include "control/cluster/gate.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "control/cluster.pb.h"

namespace flyt::cluster {
namespace {

constexpr std::size_t kKnownMax = 4096;

std::optional<std::uint32_t> user_of(const std::string& text) {
  std::uint32_t user = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, user).ptr == end && !text.empty()) return user;
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer{};
  if (::getpwnam_r(text.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return std::nullopt;
  }
  return entry.pw_uid;
}

}  // namespace

Status Gate::check() {
  for (const auto* users : {&config_.operators, &config_.viewers}) {
    for (const std::string& user : *users) {
      if (user_of(user)) continue;
      return Error{ErrorCode::kInvalid, "access: there is no user " + user};
    }
  }
  return revocations_.check();
}

Result<Caller> Gate::caller_of(const std::string& certificate_pem, const std::string& peer) {
  const Lock lock(mutex_);
  auto known = known_.find(certificate_pem);
  if (known == known_.end()) {
    auto facts = pki::facts_of(certificate_pem);
    if (!facts) return std::move(facts).error();
    if (known_.size() >= kKnownMax) known_.clear();
    known = known_.emplace(certificate_pem, std::move(*facts)).first;
  }
  const pki::CertificateFacts& facts = known->second;
  if (Status status = revocations_.admit(facts); !status) return status.error();
  const auto role = role_of(facts.role);
  if (!role || facts.name.empty()) {
    return Error{ErrorCode::kDenied, "the certificate of " + facts.name + " has no role: OU is '" +
                                         facts.role + "', not viewer, operator, admin, node or vm"};
  }
  return Caller{facts.name, *role, peer};
}

Result<Caller> Gate::speaks_for(const Caller& caller, std::string_view behalf) {
  v1::Behalf said;
  const bool good = said.ParseFromArray(behalf.data(), static_cast<int>(behalf.size()));
  if (caller.role != Role::kAdmin || !good) {
    return Error{ErrorCode::kDenied, "only a cluster manager asks for others"};
  }
  const auto role = cluster::role_of(said.role());
  if (!role || said.name().empty()) {
    return Error{ErrorCode::kDenied, "it does not say for whom, of which role, it asks"};
  }
  return Caller{said.name(), *role, said.peer()};
}

std::optional<Role> Gate::role_of_user(const Config& config, std::uint32_t user) {
  if (user == 0 || user == ::geteuid()) return Role::kAdmin;
  for (const std::string& name : config.operators) {
    if (user_of(name) == user) return Role::kOperator;
  }
  for (const std::string& name : config.viewers) {
    if (user_of(name) == user) return Role::kViewer;
  }
  return std::nullopt;
}

}  // namespace flyt::cluster
