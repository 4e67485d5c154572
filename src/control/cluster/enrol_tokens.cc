#include "control/cluster/enrol_tokens.h"

#include <algorithm>

#include "control/cluster/records.h"
#include "control/pki/enrol_token.h"

namespace flyt::cluster {
namespace {

// So long after its end somebody may want to know what became of it.
constexpr std::int64_t kKeptSeconds = 30 * 86400;

bool is_spent(const state::EnrolToken& token, std::int64_t now) {
  return token.used_at() != 0 || token.revoked() || token.expires_at() <= now;
}

Status check(const v1::CreateEnrolTokenRequest& request) {
  const bool vm = request.role() == "vm";
  if (!vm && request.role() != "node") {
    return Error{ErrorCode::kInvalid,
                 "a token is for the role node or vm: people's certificates"
                 " are made with `flytctl ca issue`"};
  }
  Status status = check_name(vm ? "a VM's name" : "a node's name", request.name(),
                             vm ? kVmNameBytesMax : kNodeNameBytesMax);
  if (!status) return status;
  if (request.hosts_size() > kEnrolHostsMax) {
    return Error{ErrorCode::kInvalid,
                 "a machine serves at " + std::to_string(kEnrolHostsMax) + " names at most"};
  }
  for (const std::string& host : request.hosts()) {
    const bool good = !host.empty() && host.size() <= kNodeNameBytesMax &&
                      std::all_of(host.begin(), host.end(), [](char c) {
                        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                               (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' ||
                               c == ':';
                      });
    if (!good) return Error{ErrorCode::kInvalid, "'" + host + "' is no name of a host"};
  }
  if (request.seconds() > kEnrolSecondsMax) {
    return Error{ErrorCode::kInvalid, "a token lasts for seven days at most"};
  }
  return {};
}

}  // namespace

std::vector<std::string> EnrolTokens::outdated(std::int64_t now) const {
  std::vector<std::string> ids;
  std::vector<std::pair<std::int64_t, std::string>> spent;
  for (const auto& [id, token] : tokens_) {
    if (token.expires_at() + kKeptSeconds <= now) {
      ids.push_back(id);
    } else if (is_spent(token, now)) {
      spent.emplace_back(token.expires_at(), id);
    }
  }
  std::sort(spent.begin(), spent.end());
  for (const auto& [at, id] : spent) {
    if (tokens_.size() - ids.size() < kEnrolTokensMax) break;
    ids.push_back(id);
  }
  return ids;
}

Result<EnrolTokens::Made> EnrolTokens::make(const v1::CreateEnrolTokenRequest& request,
                                            const std::string& by, std::uint32_t seconds,
                                            std::int64_t now) const {
  if (Status status = check(request); !status) return status.error();
  Made made;
  made.outdated = outdated(now);
  if (tokens_.size() - made.outdated.size() >= kEnrolTokensMax) {
    return Error{ErrorCode::kLimit, "there are " + std::to_string(kEnrolTokensMax) +
                                        " unused tokens already; revoke some"};
  }
  pki::EnrolTokenText text = pki::new_enrol_token({});
  made.record.id = text.id;
  made.secret = std::move(text.secret);
  state::EnrolToken& token = made.record.token;
  token.set_digest(pki::digest_of(made.secret));
  token.set_role(request.role());
  token.set_name(request.name());
  *token.mutable_hosts() = request.hosts();
  token.set_created_at(now);
  token.set_expires_at(now + (request.seconds() == 0 ? seconds : request.seconds()));
  token.set_created_by(by);
  return made;
}

Result<EnrolTokens::Record> EnrolTokens::use(const EnrolClaim& claim, std::int64_t now) const {
  const auto denied = [](const std::string& why) { return Error{ErrorCode::kDenied, why}; };
  const auto found = tokens_.find(claim.id);
  // The same work for one that is not there.
  const std::string digest = pki::digest_of(claim.secret);
  const bool known = found != tokens_.end() && pki::same_digests(digest, found->second.digest());
  if (!known) return Error{ErrorCode::kNotFound, "the token is not known"};
  Record record{found->first, found->second};
  const state::EnrolToken& token = record.token;
  if (token.revoked()) return denied("the token was revoked");
  if (token.used_at() != 0) return denied("the token was used already");
  if (token.expires_at() <= now) return denied("the token has expired");
  if (claim.role != token.role() || claim.name != token.name()) {
    return denied("the token is for " + token.role() + " " + token.name());
  }
  record.token.set_used_at(now);
  return record;
}

Result<EnrolTokens::Record> EnrolTokens::revoke(const std::string& id) const {
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return Error{ErrorCode::kNotFound, "there is no token " + id};
  if (found->second.used_at() != 0) {
    return Error{ErrorCode::kUnsupported, "it was used already: revoke the certificate " +
                                              found->second.serial() + " (flytctl ca revoke)"};
  }
  Record record{found->first, found->second};
  record.token.set_revoked(true);
  return record;
}

v1::EnrolToken EnrolTokens::view(const Record& record, std::int64_t now) {
  const state::EnrolToken& token = record.token;
  v1::EnrolToken out;
  out.set_id(record.id);
  out.set_role(token.role());
  out.set_name(token.name());
  *out.mutable_hosts() = token.hosts();
  out.set_state(token.used_at() != 0        ? "used"
                : token.revoked()           ? "revoked"
                : token.expires_at() <= now ? "expired"
                                            : "unused");
  out.set_created_at(token.created_at());
  out.set_expires_at(token.expires_at());
  out.set_created_by(token.created_by());
  out.set_used_at(token.used_at());
  out.set_used_from(token.used_from());
  out.set_serial(token.serial());
  return out;
}

v1::ListEnrolTokensResponse EnrolTokens::list(std::int64_t now) const {
  v1::ListEnrolTokensResponse out;
  for (const auto& [id, token] : tokens_) *out.add_tokens() = view({id, token}, now);
  std::sort(out.mutable_tokens()->begin(), out.mutable_tokens()->end(),
            [](const v1::EnrolToken& a, const v1::EnrolToken& b) {
              return std::pair(a.created_at(), a.id()) < std::pair(b.created_at(), b.id());
            });
  return out;
}

}  // namespace flyt::cluster
