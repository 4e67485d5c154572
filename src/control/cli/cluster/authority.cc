#include "control/cli/cluster/authority.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "control/cli/cluster/facts.h"
#include "control/cli/cluster/new_file.h"
#include "control/pki/certificate.h"
#include "control/settings/settings.h"

namespace flyt::cli {
namespace {

constexpr std::uint32_t kListDays = 3650;

Result<pki::KeyPair> authority_in(const std::string& folder) {
  const auto certificate = control::read_file(folder + "/ca.crt");
  if (!certificate) {
    return Error{certificate.error().code,
                 certificate.error().message + "; `flytctl ca init` makes an authority"};
  }
  const auto key = control::read_file(folder + "/ca.key");
  if (!key) return key.error();
  return pki::KeyPair{*certificate, *key};
}

}  // namespace

Status ca_init(const AuthorityOptions& options) {
  if (::mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("cannot make " + options.folder, errno);
  }
  for (const char* name : {"/ca.crt", "/ca.key"}) {
    if (::access((options.folder + name).c_str(), F_OK) != 0) continue;
    return Error{ErrorCode::kDenied, options.folder + " has an authority already"};
  }
  const auto pair = pki::make_authority(options.name, options.authority_days);
  if (!pair) return pair.error();
  const std::string key = options.folder + "/ca.key";
  if (Status status = write_file(key, pair->key, 0600, false); !status) return status;
  const std::string certificate = options.folder + "/ca.crt";
  if (Status status = write_file(certificate, pair->certificate, 0644, false); !status) {
    return status;
  }
  tell(options.json, {{"authority", options.name}, {"certificate", certificate}, {"key", key}});
  return {};
}

Status ca_issue(const AuthorityOptions& options) {
  const auto authority = authority_in(options.folder);
  if (!authority) return authority.error();
  if (options.name == "ca") return Error{ErrorCode::kInvalid, "ca is the authority itself"};
  const auto pair =
      pki::issue(*authority, {options.name, options.role, options.hosts, options.days});
  if (!pair) return pair.error();
  const std::string front = options.folder + "/" + options.name;
  if (::access((front + ".crt").c_str(), F_OK) == 0) {
    return Error{ErrorCode::kDenied, front + ".crt is there already; revoke and remove it first"};
  }
  if (Status status = write_file(front + ".key", pair->key, 0600, false); !status) return status;
  if (Status status = write_file(front + ".crt", pair->certificate, 0644, false); !status) {
    return status;
  }
  const auto facts = pki::facts_of(pair->certificate);
  if (!facts) return facts.error();
  tell(options.json, {{"name", facts->name},
                      {"role", facts->role},
                      {"serial", facts->serial},
                      {"certificate", front + ".crt"},
                      {"key", front + ".key"}});
  return {};
}

Status ca_revoke(const AuthorityOptions& options) {
  const auto authority = authority_in(options.folder);
  if (!authority) return authority.error();
  std::string serial = options.name;
  for (const std::string& path : {options.folder + "/" + options.name + ".crt", options.name}) {
    const auto text = control::read_file(path);
    if (!text || ::access(path.c_str(), R_OK) != 0) continue;
    const auto facts = pki::facts_of(*text);
    if (!facts) continue;
    serial = facts->serial;
    break;
  }
  const std::string path = options.folder + "/crl.pem";
  std::string before;
  if (::access(path.c_str(), F_OK) == 0) {
    auto text = control::read_file(path);
    if (!text) return text.error();
    before = std::move(*text);
  }
  const auto list = pki::revoke(*authority, before, serial, kListDays);
  if (!list) {
    return Error{list.error().code, "there is no certificate " + options.name + " in " +
                                        options.folder + ": " + list.error().message};
  }
  if (Status status = write_file(path, *list, 0644, true); !status) return status;
  tell(options.json, {{"revoked", serial}, {"list", path}});
  return {};
}

}  // namespace flyt::cli
