#include "control/cli/node/tables.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "control/cli/table.h"

namespace flyt::cli {
namespace {

namespace v1 = node::v1;

std::string mode_text(v1::Mode mode) { return mode == v1::MODE_SHARED ? "shared" : "isolated"; }

std::string expiry(std::int64_t at, std::int64_t now) {
  if (at == 0) return "never";
  if (at <= now) return "now";
  return "in " + seconds_text(static_cast<std::uint64_t>(at - now));
}

std::string groups_text(const v1::Lease& lease) {
  std::string text;
  for (const std::uint32_t group : lease.groups()) {
    text += (text.empty() ? "" : " ") + std::to_string(group);
  }
  return text;
}

std::string sms_text(const v1::Lease& lease) {
  return std::to_string(lease.sms_granted()) + " of " + std::to_string(lease.sms_asked());
}

std::string memory_text(const v1::Lease& lease) {
  return size_text(lease.memory_used_bytes()) + " / " + size_text(lease.memory_bytes());
}

// Of a lease that a cluster has made.
std::string vm_of(const v1::Lease& lease) {
  const auto vm = lease.labels().find("flyt/vm");
  return vm == lease.labels().end() ? std::string() : vm->second;
}

// Leases are letters, in the order of their groups; a dot is a free group, a star one of several.
std::string map_text(const v1::Gpu& gpu, std::map<std::string, char>& letters) {
  std::string text;
  for (const v1::Group& group : gpu.groups()) {
    if (group.lease_id().empty()) {
      text.push_back('.');
      continue;
    }
    if (group.leases() > 1) {
      text.push_back('*');
      continue;
    }
    const std::size_t number = letters.size();
    const char next = static_cast<char>(number < 26   ? 'A' + number
                                        : number < 52 ? 'a' + number - 26
                                                      : '#');
    text.push_back(letters.emplace(group.lease_id(), next).first->second);
  }
  return text;
}

// Where they are counted.
std::string gpu_sessions_text(const v1::Gpu& gpu) {
  if (gpu.sessions_max() == 0) return "-";
  const std::string text =
      std::to_string(gpu.sessions()) + " of " + std::to_string(gpu.sessions_max());
  return gpu.sessions_ready() == 0 ? text
                                   : text + ", " + std::to_string(gpu.sessions_ready()) + " ready";
}

// Whose the letters of a map are. Who has several groups is in the list of leases only.
std::string legend_of(const std::map<std::string, char>& letters,
                      const v1::ListLeasesResponse& leases) {
  std::vector<std::pair<char, std::string>> in_order;
  for (const auto& [id, letter] : letters) in_order.emplace_back(letter, id);
  std::sort(in_order.begin(), in_order.end());
  Table table({"MAP", "NAME", "VM", "ID"});
  for (const auto& [letter, id] : in_order) {
    const auto lease = std::find_if(leases.leases().begin(), leases.leases().end(),
                                    [&](const v1::Lease& one) { return one.id() == id; });
    // It was made or ended between the two questions.
    const bool known = lease != leases.leases().end();
    table.add({std::string(1, letter), known ? or_dash(lease->name()) : "-",
               known ? or_dash(vm_of(*lease)) : "-", clean(id)});
  }
  return table.text();
}

}  // namespace

std::uint32_t sms_leased(const v1::Gpu& gpu) {
  std::uint32_t sms = 0;
  for (const v1::Group& group : gpu.groups()) {
    const std::uint32_t leases = group.leases() != 0 ? group.leases() : 1;
    if (!group.lease_id().empty()) sms += group.sms() * leases;
  }
  return sms;
}

std::uint32_t sms_given_out(const v1::Gpu& gpu) {
  return std::max(gpu.sms(), gpu.sms_free() + sms_leased(gpu));
}

std::string last_group_text(const v1::Gpu& gpu) {
  if (gpu.groups().empty()) return "";
  const v1::Group& first = *gpu.groups().begin();
  const v1::Group& last = *gpu.groups().rbegin();
  if (first.sms() == last.sms()) return "";
  return "GPU " + std::to_string(gpu.index()) + ": its last group has " +
         std::to_string(last.sms()) + " multiprocessors, the others " +
         std::to_string(first.sms()) +
         (gpu.rest_is_group() ? "; it is leased with others" : "; whoever has all has it");
}

std::string table_of(const v1::NodeDescription& node, const v1::ListLeasesResponse& leases) {
  std::string out = "node      " + clean(node.name()) + "\nversion   " + clean(node.version()) +
                    "\ndriver    " + clean(node.server()) + "\nstate     " +
                    (node.draining() ? "draining: no new leases" : "open") + "\nleases    " +
                    std::to_string(node.leases()) + " of at most " +
                    std::to_string(node.leases_max()) + "\noverhead  " +
                    size_text(node.overhead_per_lease_bytes()) + " beside each quota, for " +
                    counted(node.sessions_per_lease(), "session") + "\n\n";
  Table gpus({"GPU", "NAME", "MODE", "SMS FREE", "MEMORY FREE", "LEASED", "OVERHEAD", "SESSIONS",
              "MPS", "GROUPS"});
  std::map<std::string, char> letters;
  for (const v1::Gpu& gpu : node.gpus()) {
    const std::string free = size_text(gpu.memory_free_bytes());
    gpus.add({std::to_string(gpu.index()), clean(gpu.name()), mode_text(gpu.mode()),
              std::to_string(gpu.sms_free()) + " of " + std::to_string(sms_given_out(gpu)),
              free + " of " + size_text(gpu.memory_bytes()), size_text(gpu.memory_leased_bytes()),
              size_text(gpu.memory_overhead_bytes()), gpu_sessions_text(gpu), or_dash(gpu.mps()),
              map_text(gpu, letters)});
  }
  out += gpus.text();
  for (const v1::Gpu& gpu : node.gpus()) {
    const std::string last = last_group_text(gpu);
    if (!last.empty()) out += "\n" + last + "\n";
  }
  for (const v1::Gpu& gpu : node.gpus()) {
    if (gpu.failed().empty()) continue;
    out += "\nGPU " + std::to_string(gpu.index()) + " has failed: " + clean(gpu.failed()) + "\n";
  }
  if (letters.empty()) return out;
  return out + "\n" + legend_of(letters, leases);
}

std::string table_of(const v1::ListLeasesResponse& leases, std::int64_t now) {
  Table table({"NAME", "ID", "GPU", "MODE", "SMS", "MEMORY USED", "SESSIONS", "PRIORITY", "EXPIRES",
               "STATE"});
  for (const v1::Lease& lease : leases.leases()) {
    table.add({clean(lease.name()), lease.id(), std::to_string(lease.gpu()),
               mode_text(lease.mode()), sms_text(lease), memory_text(lease),
               std::to_string(lease.sessions()), std::to_string(lease.priority()),
               expiry(lease.expires_at(), now), clean(lease.state())});
  }
  return table.text();
}

std::string table_of(const v1::ListSessionsResponse& sessions) {
  Table table({"LEASE", "CLIENT", "PID", "MACHINE", "SERVER PID", "MEMORY", "LAUNCHES", "AGE"});
  for (const v1::Session& session : sessions.sessions()) {
    table.add({clean(session.lease_name()), or_dash(session.client()),
               std::to_string(session.client_pid()), or_dash(session.peer()),
               std::to_string(session.server_pid()), size_text(session.memory_bytes()),
               std::to_string(session.launches()), seconds_text(session.seconds())});
  }
  return table.text();
}

namespace {

std::string pending_text(const v1::Lease& lease) {
  if (lease.memory_pending_bytes() == 0) return "";
  return "; shrinks to " + size_text(lease.memory_pending_bytes()) + " when it is free";
}

std::string moves_text(const v1::Lease& lease) {
  std::string text = std::to_string(lease.moves());
  if (lease.moves() != 0) {
    const std::uint64_t us = lease.last_move_microseconds();
    text += ", the last in " + std::to_string(us / 1000) + "." + std::to_string(us % 1000 / 100) +
            " ms";
  }
  if (lease.sessions_behind() != 0) {
    text += "; " + counted(lease.sessions_behind(), "session") +
            (lease.sessions_behind() == 1 ? " has not moved" : " have not moved");
  }
  if (lease.fixed() != 0) text += "; " + std::to_string(lease.fixed()) + " contexts or graphs stay";
  return text;
}

}  // namespace

std::string details_of(const v1::Lease& lease, std::int64_t now) {
  std::string out = "name      " + clean(lease.name()) + "\nid        " + lease.id() +
                    "\nstate     " + clean(lease.state());
  if (!lease.state_reason().empty()) out += ": " + clean(lease.state_reason());
  out += "\ngpu       " + std::to_string(lease.gpu()) + ", " + mode_text(lease.mode()) +
         "\nsms       " + std::to_string(lease.sms_granted()) + " granted, " +
         std::to_string(lease.sms_asked()) + " asked" +
         (lease.confined() ? "" : ", not confined to them") + "\ngroups    " + groups_text(lease) +
         "\nmemory    " + memory_text(lease) + ", and " + size_text(lease.overhead_bytes()) +
         " for contexts" + pending_text(lease) + "\nmoves     " + moves_text(lease) +
         "\npriority  " + std::to_string(lease.priority()) + "\nexpires   " +
         expiry(lease.expires_at(), now) + "\nsessions  " + std::to_string(lease.sessions()) +
         "\nserver    pid " + std::to_string(lease.server_pid()) + ", started again " +
         std::to_string(lease.restarts()) + " times\n";
  const std::map<std::string, std::string> labels(lease.labels().begin(), lease.labels().end());
  for (const auto& [key, value] : labels) {
    out += "label     " + clean(key) + "=" + clean(value) + "\n";
  }
  for (const std::string& url : lease.urls()) out += "url       " + clean(url) + "\n";
  return out;
}

std::string line_of(const v1::Event& event) {
  return time_text(event.at_ms()) + "  " + std::to_string(event.number()) + "  " +
         clean(event.kind()) + "  " + or_dash(event.lease_name()) + "  " + clean(event.text()) +
         "\n";
}

std::string top_of(const v1::NodeDescription& node, const v1::ListLeasesResponse& leases,
                   std::int64_t now) {
  Table gpus({"GPU", "NAME", "SMS LEASED", "MEMORY LEASED", "GROUPS"});
  std::map<std::string, char> letters;
  for (const v1::Gpu& gpu : node.gpus()) {
    gpus.add({std::to_string(gpu.index()), clean(gpu.name()),
              std::to_string(sms_leased(gpu)) + " of " + std::to_string(sms_given_out(gpu)),
              size_text(gpu.memory_leased_bytes()) + " of " + size_text(gpu.memory_bytes()),
              map_text(gpu, letters)});
  }
  return clean(node.name()) + (node.draining() ? "  draining" : "") + "\n\n" + gpus.text() + "\n" +
         table_of(leases, now);
}

Result<std::string> exports_of(const v1::Token& token, bool tcp) {
  std::string url;
  for (const std::string& candidate : token.urls()) {
    if (url.empty() && (!tcp || candidate.starts_with("tcp:"))) url = candidate;
  }
  if (url.empty()) {
    return Error{ErrorCode::kUnsupported,
                 "the node's leases have no address for other machines: leases.tcp_host and"
                 " leases.tcp_ports of its configuration give them one"};
  }
  // Neither has a quote: the one is a URL of ours, the other letters and digits.
  return "export FLYT_SERVER='" + clean(url) + "'\nexport FLYT_TOKEN='" + clean(token.token()) +
         "'\n";
}

std::string details_of(const v1::Token& token, std::int64_t now) {
  std::string out =
      "token     " + clean(token.token()) + "\nexpires   " + expiry(token.expires_at(), now) + "\n";
  for (const std::string& url : token.urls()) out += "url       " + clean(url) + "\n";
  return out;
}

}  // namespace flyt::cli
