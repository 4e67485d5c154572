// `flytctl renew`: the next certificate of a machine that has one.
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <iostream>

#include "base/clock.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "control/cli/cluster/enrol.h"
#include "control/cli/cluster/facts.h"
#include "control/cli/cluster/new_file.h"
#include "control/cli/table.h"
#include "control/cluster_client/enrol_client.h"
#include "control/pki/certificate.h"
#include "control/settings/settings.h"

namespace flyt::cli {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);

struct Machine {
  control::TlsFiles files;
  pki::KeyPair pair;
  pki::CertificateFacts facts;
};

std::string next_of(const std::string& path) { return path + ".next"; }

Status put_in_place(const std::string& path) {
  if (::rename(next_of(path).c_str(), path.c_str()) == 0) return {};
  return system_error("cannot replace " + path, errno);
}

// If the last time ended between the key and the certificate, the second one is put in place.
Status finish_last(const control::TlsFiles& files) {
  const auto next = control::read_file(next_of(files.cert));
  const auto key = control::read_file(files.key);
  const bool belongs = next && key && pki::check_pair({*next, *key});
  if (belongs) return put_in_place(files.cert);
  ::unlink(next_of(files.cert).c_str());
  ::unlink(next_of(files.key).c_str());
  return {};
}

Result<Machine> machine_of(const EnrolOptions& options) {
  const std::string front = options.folder + "/" + options.name;
  Machine machine{{front + ".crt", front + ".key", options.folder + "/ca.crt"}, {}, {}};
  if (Status status = finish_last(machine.files); !status) return status.error();
  auto certificate = control::read_file(machine.files.cert);
  if (!certificate) return std::move(certificate).error();
  auto key = control::read_file(machine.files.key);
  if (!key) return std::move(key).error();
  machine.pair = {std::move(*certificate), std::move(*key)};
  if (Status status = pki::check_pair(machine.pair); !status) {
    return Error{status.error().code, front + ": " + status.error().message};
  }
  auto facts = pki::facts_of(machine.pair.certificate);
  if (!facts) return std::move(facts).error();
  machine.facts = std::move(*facts);
  return machine;
}

// From when on it is renewed, in seconds since 1970.
Result<std::int64_t> due(const pki::CertificateFacts& facts, const std::string& within) {
  if (within.empty()) return facts.expires_at - (facts.expires_at - facts.begins_at) / 3;
  const auto seconds = parse_seconds(within);
  if (!seconds) return seconds.error();
  return facts.expires_at - static_cast<std::int64_t>(*seconds);
}

Result<std::string> ask(const EnrolOptions& options, const Machine& machine,
                        const std::string& signing_request) {
  Error last{ErrorCode::kInvalid, "--at is missing"};
  for (const std::string& server : options.servers) {
    auto certificate = cluster::ask_to_renew(server, machine.files, signing_request, kPatience);
    if (certificate) return certificate;
    last = std::move(certificate).error();
    if (last.code != ErrorCode::kLost) return last;
  }
  return last;
}

// Beside the old file, as it belongs to somebody and is readable by somebody.
Status write_next(const std::string& path, const std::string& text) {
  struct stat old {};
  if (::stat(path.c_str(), &old) != 0) return system_error("cannot read " + path, errno);
  const std::string next = next_of(path);
  if (Status status = write_file(next, text, 0600, true); !status) return status;
  if (::chown(next.c_str(), old.st_uid, old.st_gid) == 0 &&
      ::chmod(next.c_str(), old.st_mode & 07777) == 0) {
    return {};
  }
  const Error error = system_error("cannot give " + next + " to the owner of " + path, errno);
  ::unlink(next.c_str());
  return error;
}

Status run(const std::string& command) {
  std::string shell = "sh";
  std::string flag = "-c";
  std::string text = command;
  const std::array<char*, 4> arguments{shell.data(), flag.data(), text.data(), nullptr};
  pid_t child = 0;
  const int failed =
      ::posix_spawn(&child, "/bin/sh", nullptr, nullptr, arguments.data(), ::environ);
  if (failed != 0) return system_error("the certificate is new; cannot run a shell", failed);
  int how = 0;
  while (::waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return {};
  const std::string status = WIFEXITED(how) ? "exit status " + std::to_string(WEXITSTATUS(how))
                                            : "signal " + std::to_string(WTERMSIG(how));
  return Error{ErrorCode::kSystem, "the certificate is new, but " + command + ": " + status};
}

}  // namespace

Status renew(const EnrolOptions& options) {
  const auto machine = machine_of(options);
  if (!machine) return machine.error();
  const pki::CertificateFacts& facts = machine->facts;
  const std::string& path = machine->files.cert;
  const auto from = due(facts, options.within);
  if (!from) return from.error();
  const std::int64_t now = unix_seconds();
  if (now >= facts.expires_at) {
    return Error{ErrorCode::kDenied, path + " has ended: enrol again, with a token"};
  }
  if (now < *from && options.json) {
    tell(true, {{"certificate", path},
                {"expires", time_text(facts.expires_at * 1000)},
                {"renewed_from", time_text(*from * 1000)}});
    return {};
  }
  if (now < *from) {
    std::cout << path << " is good until " << time_text(facts.expires_at * 1000)
              << "; it is renewed from " << time_text(*from * 1000) << " on\n";
    return {};
  }
  const auto request = pki::make_request(facts.name, facts.role);
  if (!request) return request.error();
  const auto certificate = ask(options, *machine, request->request);
  if (!certificate) return certificate.error();
  const auto fresh = pki::facts_of(*certificate);
  const Status pair = pki::check_pair({*certificate, request->key});
  if (!fresh || !pair || fresh->name != facts.name || fresh->role != facts.role) {
    return Error{ErrorCode::kSystem, "the cluster manager gave a certificate of somebody else"};
  }
  if (Status status = write_next(path, *certificate); !status) return status;
  if (Status status = write_next(machine->files.key, request->key); !status) return status;
  // The key first: what is left to do then, the next time finds.
  if (Status status = put_in_place(machine->files.key); !status) return status;
  if (Status status = put_in_place(path); !status) return status;
  tell(options.json, {{"certificate", path},
                      {"key", machine->files.key},
                      {"serial", fresh->serial},
                      {"expires", time_text(fresh->expires_at * 1000)}});
  return options.then.empty() ? Status() : run(options.then);
}

}  // namespace flyt::cli
