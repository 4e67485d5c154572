#include "control/cli/config/ancestor.h"

#include <algorithm>
#include <map>
#include <set>

#include "control/settings/each_setting.h"

namespace flyt::cli {
namespace {

using control::flag_setting;
using control::number_setting;
using control::Setter;
using control::text_setting;

// What any of the files may say.
struct Ancestor {
  std::uint16_t node_port = 0;
  std::uint16_t client_port = 0;
  bool deallocate = true;
  std::uint32_t grace = 0;
  std::string manager;
  std::uint16_t manager_port = 0;
  std::string advertise;
  std::string database_host;
  std::uint16_t database_port = 27017;
  std::string database_user;
  std::string database_auth;
  std::string database;
  std::string ignored;
  std::uint64_t ignored_number = 0;
};

struct Key {
  Setter set;
  const char* why = nullptr;  // It is not carried over; nullptr: it is.
};
using Keys = std::map<std::string, Key, std::less<>>;

constexpr char kPassword[] =
    "no configuration has a secret in it: write it into the file requirements.password_file";
constexpr char kOnePort[] = "nodes, VMs and people come to one port, with certificates";
constexpr char kQueues[] = "programs ask at a socket of their machine; there are no queues";
constexpr char kNoFolder[] = "no virtual GPU is moved by way of files";
constexpr char kOwnServer[] = "each virtual GPU has a flyt-server of this version";
constexpr char kScraped[] = "metrics are fetched, not sent: see metrics.listen";

Setter any_text(std::string& out) {
  return [&out](const control::SettingValue& value) -> Status {
    const auto text = value.text();
    if (!text) return control::expected("a text");
    out = *text;
    return {};
  };
}

Keys keys_of_cluster(Ancestor& all) {
  constexpr std::int64_t kPortMax = 65535;
  const auto ignored = [&all](const char* why) { return Key{any_text(all.ignored), why}; };
  return {
      {"vm-resource-db.host", {any_text(all.database_host)}},
      {"vm-resource-db.port", {number_setting(all.database_port, 1, kPortMax)}},
      {"vm-resource-db.user", {any_text(all.database_user)}},
      {"vm-resource-db.password", ignored(kPassword)},
      {"vm-resource-db.dbname", {any_text(all.database)}},
      {"vm-resource-db.auth-source", {any_text(all.database_auth)}},
      {"ports.node", {number_setting(all.node_port, 1, kPortMax), kOnePort}},
      {"ports.client", {number_setting(all.client_port, 1, kPortMax), kOnePort}},
      {"virt-server-auto-deallocate.enabled", {flag_setting(all.deallocate)}},
      {"virt-server-auto-deallocate.grace-period", {number_setting(all.grace, 0, 30 * 86400)}},
      {"ipc.mqueue-path", ignored(kQueues)},
      {"ipc.frontend-socket", ignored("flytctl asks at api.unix, whose default is good")},
      {"migration.ckp-path", ignored(kNoFolder)},
      {"metrics.port", {number_setting(all.ignored_number, 1, kPortMax), kScraped}},
      {"metrics.interval", {number_setting(all.ignored_number, 0, INT32_MAX), kScraped}},
  };
}

Keys keys_of_node(Ancestor& all) {
  return {
      {"resource-manager.address", {text_setting(all.manager)}},
      {"resource-manager.port", {number_setting(all.manager_port, 1, 65535), kOnePort}},
      {"network.advertise-address", {text_setting(all.advertise)}},
      {"virt-server.program-path", {any_text(all.ignored), kOwnServer}},
      {"virt-server.program-args", {any_text(all.ignored), kOwnServer}},
      {"virt-server.thread-mode", {number_setting(all.ignored_number, 0, 16), kOwnServer}},
      {"ipc.mqueue-path", {any_text(all.ignored), kQueues}},
  };
}

Keys keys_of_client(Ancestor& all) {
  return {
      {"resource-manager.address", {text_setting(all.manager)}},
      {"resource-manager.port", {number_setting(all.manager_port, 1, 65535), kOnePort}},
      {"resource-manager.metrics-port", {number_setting(all.ignored_number, 1, 65535), kScraped}},
      {"vcuda-client.process-monitor-period",
       {number_setting(all.ignored_number, 0, INT32_MAX),
        "the end of a program is noticed at once, without looking for it"}},
      {"ipc.mqueue-path", {any_text(all.ignored), kQueues}},
      {"ipc.frontend-socket", {any_text(all.ignored), kQueues}},
  };
}

// Sections tell whose the file is.
Result<std::string> program_of(const std::set<std::string>& sections, const std::string& file) {
  const std::map<std::string, const char*> tell = {
      {"vm-resource-db", "cluster"}, {"ports", "cluster"},
      {"migration", "cluster"},      {"virt-server-auto-deallocate", "cluster"},
      {"virt-server", "node"},       {"vcuda-client", "client"},
  };
  std::string program;
  for (const std::string& section : sections) {
    const auto found = tell.find(section);
    if (found == tell.end() || found->second == program) continue;
    if (!program.empty()) {
      return Error{ErrorCode::kInvalid, file + ": is both a " + program + "'s and a " +
                                            found->second + "'s, by its section " + section};
    }
    program = found->second;
  }
  if (!program.empty()) return program;
  return Error{
      ErrorCode::kInvalid,
      file +
          ": expected a configuration of a cluster manager, with [ports], of a node manager,"
          " with [virt-server], or of a client manager, with [vcuda-client]"};
}

// Quotes, backslashes and what cannot be printed would end or change a text.
Result<std::string> host_of(const std::string& host, const std::string& file, const char* key) {
  const bool good =
      !host.empty() && host.size() <= 255 && std::all_of(host.begin(), host.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '.' || c == ':' || c == '_';
      });
  if (!good) {
    return Error{ErrorCode::kInvalid, file + ": " + key + ": expected a host's name or address"};
  }
  return host.find(':') == host.npos ? host : "[" + host + "]";
}

std::string certificates(const ImportPlace& place, const std::string& name) {
  return "cert = \"" + place.folder + "/" + name + ".crt\"\nkey = \"" + place.folder + "/" + name +
         ".key\"\nca = \"" + place.folder + "/ca.crt\"\n";
}

// As a part of a URI: whatever is not a letter, a digit or one of a few others is written as %XX.
std::string escaped(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_';
    const auto byte = static_cast<unsigned char>(c);
    out += plain ? std::string(1, c) : std::string{'%', kDigits[byte >> 4u], kDigits[byte & 15u]};
  }
  return out;
}

// Empty, where VMs came from no database.
Result<std::string> requirements_toml(const Ancestor& all, const std::string& file,
                                      const ImportPlace& place) {
  if (all.database_host.empty()) return std::string();
  const auto host = host_of(all.database_host, file, "vm-resource-db.host");
  if (!host) return host.error();
  const bool plain = all.database.empty() || all.database == escaped(all.database);
  if (!plain) {
    return Error{ErrorCode::kInvalid, file +
                                          ": vm-resource-db.dbname: expected letters, digits,"
                                          " '-', '_' and '.'"};
  }
  const std::string& user = all.database_user;
  std::string out = "[requirements]\nmongodb = \"mongodb://" +
                    (user.empty() ? "" : escaped(user) + "@") + *host + ":" +
                    std::to_string(all.database_port) + "/";
  if (!all.database_auth.empty()) out += "?authSource=" + escaped(all.database_auth);
  out += "\"\n";
  if (!all.database.empty()) out += "database = \"" + all.database + "\"\n";
  if (!user.empty()) out += "password_file = \"" + place.folder + "/mongodb.password\"\n";
  return out;
}

std::string cluster_toml(const Ancestor& all, const ImportPlace& place) {
  return "# `flytctl ca` makes the certificates.\n[api]\ntcp = \"0.0.0.0:" +
         std::to_string(place.port) + "\"\n" + certificates(place, "cluster") +
         "[vms]\nfree_unused = " + (all.deallocate ? "true" : "false") +
         "\ngrace = " + std::to_string(std::max(all.grace, 1u)) + "\n";
}

std::string node_toml(const std::string& manager, const std::string& own,
                      const ImportPlace& place) {
  return "# `flytctl ca` makes the certificates.\n[api]\ntcp = \"0.0.0.0:7701\"\n" +
         certificates(place, "node") +
         "[gpus]\n# As before: side by side under MPS. \"isolated\": in turns, and a fault stays"
         " with who made it.\nmode = \"shared\"\n[leases]\ntcp_host = \"0.0.0.0\"\ntcp_ports ="
         " \"7710-7799\"\nadvertise = \"" +
         own + "\"\n[cluster]\naddress = \"" + manager + ":" + std::to_string(place.port) +
         "\"\nadvertise = \"" + own + ":7701\"\n";
}

std::string client_toml(const std::string& manager, const ImportPlace& place) {
  return "# `flytctl ca` makes the certificate; it names the VM.\n[cluster]\naddresses = [\"" +
         manager + ":" + std::to_string(place.port) + "\"]\n" + certificates(place, "vm");
}

}  // namespace

Result<Imported> import_ancestor(std::string_view text, const std::string& file,
                                 const ImportPlace& place) {
  std::set<std::string> sections;
  Status status = control::each_setting(text, file, [&](const auto& where, const auto&) -> Status {
    sections.insert(where.section);
    return {};
  });
  if (!status) return status.error();
  const auto program = program_of(sections, file);
  if (!program) return program.error();
  Imported out{.program = *program, .toml = {}, .left = {}};
  Ancestor all;
  const Keys keys = *program == "cluster" ? keys_of_cluster(all)
                    : *program == "node"  ? keys_of_node(all)
                                          : keys_of_client(all);
  status = control::each_setting(text, file, [&](const auto& where, const auto& value) -> Status {
    const std::string name = where.section.empty() ? where.key : where.section + "." + where.key;
    const auto known = keys.find(name);
    if (known == keys.end()) {
      out.left.push_back({where.line, name, "unknown: no Flyt has had it"});
      return {};
    }
    if (Status taken = known->second.set(value); !taken) return taken;
    if (known->second.why != nullptr) out.left.push_back({where.line, name, known->second.why});
    return {};
  });
  if (!status) return status.error();
  if (*program == "cluster") {
    const auto requirements = requirements_toml(all, file, place);
    if (!requirements) return requirements.error();
    out.toml = cluster_toml(all, place) + *requirements;
  } else {
    const auto manager = host_of(all.manager, file, "resource-manager.address");
    if (!manager) return manager.error();
    const auto own = host_of(all.advertise.empty() ? place.host : all.advertise, file,
                             "network.advertise-address, or --host");
    if (!own && *program == "node") return own.error();
    out.toml = *program == "node" ? node_toml(*manager, *own, place) : client_toml(*manager, place);
  }
  out.toml =
      "# Made of " + file.substr(file.rfind('/') + 1) + " by flytctl config import.\n" + out.toml;
  return out;
}

}  // namespace flyt::cli
