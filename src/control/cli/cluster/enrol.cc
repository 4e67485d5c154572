#include "control/cli/cluster/enrol.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "base/clock.h"
#include "base/text.h"
#include "control/cli/cluster/facts.h"
#include "control/cli/cluster/new_file.h"
#include "control/cli/table.h"
#include "control/cluster_client/enrol_client.h"
#include "control/json/message_json.h"
#include "control/pki/certificate.h"
#include "control/pki/enrol_token.h"
#include "control/pki/pinned.h"
#include "control/settings/settings.h"

namespace flyt::cli {
namespace {

namespace v1 = cluster::v1;

constexpr Duration kPatience = std::chrono::seconds(20);

std::string at_text(std::int64_t seconds) { return seconds == 0 ? "-" : time_text(seconds * 1000); }

std::string tokens_table(const v1::ListEnrolTokensResponse& all) {
  Table table({"ID", "ROLE", "NAME", "STATE", "EXPIRES", "BY", "USED", "FROM", "SERIAL"});
  for (const v1::EnrolToken& one : all.tokens()) {
    table.add({clean(one.id()), clean(one.role()), clean(one.name()), clean(one.state()),
               at_text(one.expires_at()), or_dash(one.created_by()), at_text(one.used_at()),
               or_dash(one.used_from()), or_dash(one.serial())});
  }
  return table.text();
}

template <class Ask, class Text>
Status print(const EnrolOptions& options, Ask ask, Text text) {
  const auto client = cluster::ClusterClient::connect(options.address);
  if (!client) return client.error();
  const auto reply = ask(**client);
  if (!reply) return reply.error();
  std::cout << (options.json ? control::json_of(*reply) : text(*reply)) << std::flush;
  return {};
}

Result<std::string> token_of(const EnrolOptions& options) {
  std::string text;
  if (options.token_file == "-") {
    std::getline(std::cin, text);
  } else if (!options.token_file.empty()) {
    auto read = control::read_file(options.token_file);
    if (!read) return std::move(read).error();
    text = std::move(*read);
  } else if (const char* set = std::getenv("FLYT_ENROL_TOKEN"); set != nullptr) {
    text = set;
  } else {
    return Error{ErrorCode::kInvalid, "--token-file or FLYT_ENROL_TOKEN is missing"};
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

// What is to be written, and where; that it can be is looked at before the token is spent.
struct Files {
  std::string certificate;
  std::string key;
  std::string authority;
  std::string known_authority;  // What is there already; empty: nothing.
};

Result<Files> files_in(const EnrolOptions& options) {
  const std::string front = options.folder + "/" + options.name;
  Files files{front + ".crt", front + ".key", options.folder + "/ca.crt", {}};
  if (options.name == "ca") return Error{ErrorCode::kInvalid, "ca is the authority itself"};
  for (const std::string& path : {files.certificate, files.key}) {
    if (::access(path.c_str(), F_OK) != 0) continue;
    return Error{ErrorCode::kDenied, path + " is there already; it is not written over"};
  }
  if (::mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("cannot make " + options.folder, errno);
  }
  if (::access(options.folder.c_str(), W_OK | X_OK) != 0) {
    return system_error("cannot write into " + options.folder, errno);
  }
  if (::access(files.authority.c_str(), F_OK) == 0) {
    auto text = control::read_file(files.authority);
    if (!text) return std::move(text).error();
    files.known_authority = std::move(*text);
  }
  return files;
}

// By the file that is named, or by the fingerprint in the token.
Result<std::string> authority_at(const std::string& server, const std::string& ca_file,
                                 const std::string& pin) {
  if (!ca_file.empty()) return control::read_file(ca_file);
  const auto address = control::parse_address(server);
  if (!address) return address.error();
  auto found =
      pki::find_authority(address->host, address->port, pin, system_clock().now() + kPatience);
  if (found) return found;
  const ErrorCode code = found.error().code;
  return Error{code == ErrorCode::kTimeout || code == ErrorCode::kSystem ? ErrorCode::kLost : code,
               server + ": " + found.error().message};
}

struct Enrolled {
  std::string certificate;
  std::string authority;
};

// One server after the other, as long as none has an opinion.
Result<Enrolled> ask(const EnrolOptions& options, const std::string& token, const std::string& pin,
                     const std::string& signing_request, const std::string& known) {
  Error last{ErrorCode::kInvalid, "--at is missing"};
  for (const std::string& server : options.servers) {
    auto authority = authority_at(server, options.address.ca, pin);
    if (!authority) {
      last = std::move(authority).error();
      if (last.code != ErrorCode::kLost) return last;
      continue;
    }
    if (!known.empty()) {
      const auto here = pki::fingerprint_of(known);
      const auto there = pki::fingerprint_of(*authority);
      if (!here || !there || *here != *there) {
        return Error{ErrorCode::kDenied, options.folder + "/ca.crt is of another authority"};
      }
    }
    auto certificate = cluster::ask_to_enrol(
        {server, *authority, token, options.role, options.name, signing_request}, kPatience);
    if (certificate) return Enrolled{std::move(*certificate), std::move(*authority)};
    last = std::move(certificate).error();
    if (last.code != ErrorCode::kLost) return last;
  }
  return last;
}

}  // namespace

Status enrol_token_create(const EnrolOptions& options) {
  v1::CreateEnrolTokenRequest request;
  request.set_role(options.role);
  request.set_name(options.name);
  for (const std::string& host : options.hosts) request.add_hosts(host);
  if (!options.lasts.empty()) {
    const auto seconds = parse_seconds(options.lasts);
    if (!seconds) return seconds.error();
    if (*seconds == 0 || *seconds > UINT32_MAX) {
      return Error{ErrorCode::kInvalid, "--lasts takes from a second to seven days"};
    }
    request.set_seconds(static_cast<std::uint32_t>(*seconds));
  }
  return print(
      options, [&](cluster::ClusterClient& client) { return client.new_enrol_token(request); },
      [](const v1::EnrolToken& token) { return token.token() + "\n"; });
}

Status enrol_token_list(const EnrolOptions& options) {
  return print(
      options, [](cluster::ClusterClient& client) { return client.enrol_tokens(); }, tokens_table);
}

Status enrol_token_revoke(const EnrolOptions& options) {
  return print(
      options,
      [&](cluster::ClusterClient& client) { return client.revoke_enrol_token(options.name); },
      [](const v1::EnrolToken& token) { return clean(token.id()) + " is revoked\n"; });
}

Status enrol(const EnrolOptions& options) {
  const auto token = token_of(options);
  if (!token) return token.error();
  const auto parts = pki::parse_enrol_token(*token);
  if (!parts) return parts.error();
  const auto files = files_in(options);
  if (!files) return files.error();
  const auto request = pki::make_request(options.name, options.role);
  if (!request) return request.error();
  const auto enrolled = ask(options, *token, parts->pin, request->request, files->known_authority);
  if (!enrolled) return enrolled.error();
  const auto facts = pki::facts_of(enrolled->certificate);
  if (!facts || facts->name != options.name || facts->role != options.role) {
    return Error{ErrorCode::kSystem, "the cluster manager gave a certificate of somebody else"};
  }
  if (Status status = write_file(files->key, request->key, 0600, false); !status) return status;
  if (files->known_authority.empty()) {
    Status status = write_file(files->authority, enrolled->authority, 0644, false);
    if (!status) return status;
  }
  // It comes last: where it is, the others are.
  Status status = write_file(files->certificate, enrolled->certificate, 0644, false);
  if (!status) return status;
  tell(options.json, {{"certificate", files->certificate},
                      {"key", files->key},
                      {"authority", files->authority},
                      {"serial", facts->serial}});
  return {};
}

}  // namespace flyt::cli
