#include "control/cli/cluster/tables.h"

#include <map>

#include "base/text.h"
#include "control/cli/node/tables.h"
#include "control/cli/table.h"

namespace flyt::cli {
namespace {

namespace v1 = cluster::v1;

std::string state_text(v1::NodeState state) {
  switch (state) {
    case v1::NODE_READY:
      return "ready";
    case v1::NODE_CORDONED:
      return "cordoned";
    case v1::NODE_DRAINING:
      return "draining";
    case v1::NODE_LOST:
      return "lost";
    default:
      return "unknown";
  }
}

std::string mode_text(node::v1::Mode mode) {
  return mode == node::v1::MODE_SHARED ? "shared" : "isolated";
}

std::string ago(std::int64_t at_ms, std::int64_t now_ms) {
  if (at_ms == 0) return "never";
  const std::int64_t seconds = now_ms > at_ms ? (now_ms - at_ms) / 1000 : 0;
  return seconds_text(static_cast<std::uint64_t>(seconds)) + " ago";
}

std::uint64_t megabytes(std::uint64_t bytes) { return bytes >> 20; }

// Leases are letters, in the order of their groups; a dot is a free group, a star one of several.
std::string map_text(const node::v1::Gpu& gpu) {
  std::map<std::string, char> letters;
  std::string text;
  for (const node::v1::Group& group : gpu.groups()) {
    if (group.lease_id().empty()) {
      text.push_back('.');
      continue;
    }
    if (group.leases() > 1) {
      text.push_back('*');
      continue;
    }
    const std::size_t number = letters.size();
    const char next = static_cast<char>(number < 26 ? 'A' + number : '#');
    text.push_back(letters.emplace(group.lease_id(), next).first->second);
  }
  return text;
}

std::string range_text(const v1::VmSpec& spec) {
  if (spec.sms_max() == 0) return "";
  return "from " + std::to_string(spec.sms_min()) + " to " + std::to_string(spec.sms_max()) +
         " by use, ";
}

std::string sharing_text(const v1::VmSpec& spec) {
  return spec.share_sms() ? "\nshares    multiprocessors, where they are given out twice" : "";
}

}  // namespace

std::string phase_text(const v1::VirtualGpu& gpu) {
  switch (gpu.phase()) {
    case v1::PHASE_WAITING:
      return "waiting, " + std::to_string(gpu.ahead()) + " ahead";
    case v1::PHASE_STARTING:
      return "starting";
    case v1::PHASE_READY:
      return "ready";
    case v1::PHASE_ENDING:
      return "ending";
    default:
      return "none";
  }
}

std::string text_of(const v1::ClusterDescription& all) {
  return "cluster   " + clean(all.cluster()) + "\nversion   " + clean(all.version()) +
         "\npolicy    " + clean(all.policy()) + "\nnodes     " + std::to_string(all.nodes()) +
         ", " + std::to_string(all.nodes_ready()) + " ready\ngpus      " +
         std::to_string(all.gpus()) + "\nvms       " + std::to_string(all.vms()) + "\nleases    " +
         std::to_string(all.leases()) + "\nwaiting   " + std::to_string(all.waiting()) +
         "\nyou       " + clean(all.caller()) + "\n";
}

std::string nodes_table(const v1::ListNodesResponse& nodes, std::int64_t now_ms) {
  Table table({"NODE", "STATE", "GPUS", "SMS FREE", "MEMORY FREE", "LEASES", "HOST", "REPORTED"});
  for (const v1::Node& node : nodes.nodes()) {
    std::uint64_t sms = 0;
    std::uint64_t free_sms = 0;
    std::uint64_t memory = 0;
    std::uint64_t free_memory = 0;
    for (const node::v1::Gpu& gpu : node.description().gpus()) {
      sms += sms_given_out(gpu);
      free_sms += gpu.sms_free();
      memory += gpu.memory_bytes();
      free_memory += gpu.memory_free_bytes();
    }
    table.add({clean(node.name()), state_text(node.state()),
               std::to_string(node.description().gpus_size()),
               std::to_string(free_sms) + " of " + std::to_string(sms),
               size_text(free_memory) + " of " + size_text(memory), std::to_string(node.leases()),
               or_dash(node.host()), ago(node.reported_at_ms(), now_ms)});
  }
  return table.text();
}

std::string gpus_table(const v1::ListNodesResponse& nodes) {
  Table table({"NODE", "GPU", "NAME", "MODE", "SMS FREE", "MEMORY FREE", "GROUPS", "STATE"});
  std::string last_groups;
  for (const v1::Node& node : nodes.nodes()) {
    for (const node::v1::Gpu& gpu : node.description().gpus()) {
      table.add({clean(node.name()), std::to_string(gpu.index()), clean(gpu.name()),
                 mode_text(gpu.mode()),
                 std::to_string(gpu.sms_free()) + " of " + std::to_string(sms_given_out(gpu)),
                 size_text(gpu.memory_free_bytes()) + " of " + size_text(gpu.memory_bytes()),
                 map_text(gpu), gpu.failed().empty() ? state_text(node.state()) : "failed"});
      const std::string last = last_group_text(gpu);
      if (!last.empty()) last_groups += "\n" + clean(node.name()) + ", " + last + "\n";
    }
  }
  return table.text() + last_groups;
}

std::string vms_table(const v1::ListVmsResponse& vms) {
  Table table({"VM", "ADDRESS", "WANTS", "STATE", "NODE", "GPU", "SMS", "MEMORY USED", "SESSIONS",
               "PRIORITY"});
  for (const v1::Vm& vm : vms.vms()) {
    const v1::VirtualGpu& gpu = vm.gpu();
    const bool has = gpu.phase() == v1::PHASE_READY || gpu.phase() == v1::PHASE_STARTING;
    table.add(
        {clean(vm.spec().name()), or_dash(vm.spec().address()),
         std::to_string(vm.spec().sms()) + " SMs, " + size_text(vm.spec().memory_bytes()),
         phase_text(gpu), or_dash(gpu.node()), has ? std::to_string(gpu.gpu()) : "-",
         has ? std::to_string(gpu.sms_granted()) : "-",
         has ? size_text(vm.memory_used_bytes()) + " / " + size_text(gpu.memory_bytes()) : "-",
         std::to_string(vm.sessions()), std::to_string(vm.spec().priority())});
  }
  return table.text();
}

std::string leases_table(const v1::ListClusterLeasesResponse& leases) {
  Table table({"VM", "NODE", "GPU", "STATE", "SMS", "MEMORY USED", "SESSIONS", "LEASE", "REASON"});
  for (const v1::ClusterLease& one : leases.leases()) {
    const node::v1::Lease& lease = one.lease();
    table.add({or_dash(one.vm()), clean(one.node()), std::to_string(lease.gpu()),
               clean(one.state()),
               std::to_string(lease.sms_granted()) + " of " + std::to_string(lease.sms_asked()),
               size_text(lease.memory_used_bytes()) + " / " + size_text(lease.memory_bytes()),
               std::to_string(lease.sessions()), or_dash(lease.name()), or_dash(one.reason())});
  }
  return table.text();
}

std::string sessions_table(const v1::ListClusterSessionsResponse& sessions) {
  Table table({"VM", "NODE", "CLIENT", "PID", "MACHINE", "MEMORY", "LAUNCHES", "AGE"});
  for (const v1::ClusterSession& one : sessions.sessions()) {
    const node::v1::Session& session = one.session();
    table.add({clean(one.vm()), clean(one.node()), or_dash(session.client()),
               std::to_string(session.client_pid()), or_dash(session.peer()),
               size_text(session.memory_bytes()), std::to_string(session.launches()),
               seconds_text(session.seconds())});
  }
  std::string text = table.text();
  for (const std::string& problem : sessions.problems()) text += clean(problem) + "\n";
  return text;
}

std::string audit_table(const v1::ListAuditResponse& audit) {
  Table table({"TIME", "NUMBER", "WHO", "FROM", "DID", "TO", "DETAILS", "RESULT"});
  for (const v1::AuditEntry& entry : audit.entries()) {
    table.add({time_text(entry.at_ms()), std::to_string(entry.number()), or_dash(entry.caller()),
               or_dash(entry.peer()), clean(entry.action()), or_dash(entry.subject()),
               or_dash(entry.details()), clean(entry.result())});
  }
  return table.text();
}

std::string details_of(const v1::Node& node, std::int64_t now_ms) {
  std::string out = "name      " + clean(node.name()) + "\nstate     " + state_text(node.state());
  if (!node.reason().empty()) out += ": " + clean(node.reason());
  out += "\naddress   " + clean(node.address()) + "\nhost      " + clean(node.host()) +
         "\nreported  " + ago(node.reported_at_ms(), now_ms) + "\nversion   " +
         or_dash(node.description().version()) + "\ndriver    " +
         or_dash(node.description().server()) + "\nleases    " + std::to_string(node.leases()) +
         " of at most " + std::to_string(node.description().leases_max()) + "\n";
  for (const std::string& problem : node.problems()) out += "problem   " + clean(problem) + "\n";
  v1::ListNodesResponse alone;
  *alone.add_nodes() = node;
  return out + "\n" + gpus_table(alone);
}

std::string details_of(const v1::Vm& vm) {
  const v1::VmSpec& spec = vm.spec();
  const v1::VirtualGpu& gpu = vm.gpu();
  std::string out = "name      " + clean(spec.name()) + "\naddress   " + or_dash(spec.address()) +
                    "\nhost      " + or_dash(spec.host()) + "\nwants     " +
                    std::to_string(spec.sms()) + " multiprocessors, " + range_text(spec) +
                    size_text(spec.memory_bytes()) + "\npolicy    " +
                    (spec.policy().empty() ? "the cluster's" : clean(spec.policy())) +
                    "\npriority  " + std::to_string(spec.priority()) + "\nunused    " +
                    (spec.keep() ? "kept" : "taken back") + sharing_text(spec) + "\n";
  const std::map<std::string, std::string> labels(spec.labels().begin(), spec.labels().end());
  for (const auto& [key, value] : labels) {
    out += "label     " + clean(key) + "=" + clean(value) + "\n";
  }
  for (const std::string& key : spec.apart()) out += "apart     " + clean(key) + "\n";
  out += "state     " + phase_text(gpu) + (gpu.reason().empty() ? "" : ": " + clean(gpu.reason())) +
         "\n";
  if (gpu.node().empty()) return out;
  out += "node      " + clean(gpu.node()) + ", GPU " + std::to_string(gpu.gpu()) + ", " +
         clean(gpu.gpu_name()) + "\nsms       " + std::to_string(gpu.sms_granted()) + " granted, " +
         std::to_string(gpu.sms_asked()) + " asked\nmemory    " +
         size_text(vm.memory_used_bytes()) + " / " + size_text(gpu.memory_bytes()) +
         "\nsessions  " + std::to_string(vm.sessions()) + "\n";
  if (vm.has_busy_percent()) {
    out += "busy      " + std::to_string(vm.busy_percent()) + " %, launches waiting for " +
           std::to_string(vm.queued_percent()) + " %\n";
  }
  for (const std::string& url : gpu.urls()) out += "url       " + clean(url) + "\n";
  return out;
}

std::string text_of(const v1::Explanation& explanation) {
  std::string out;
  for (const std::string& line : explanation.lines()) out += clean(line) + "\n";
  return out;
}

std::string line_of(const v1::ClusterEvent& event) {
  return time_text(event.at_ms()) + "  " + std::to_string(event.number()) + "  " +
         clean(event.kind()) + "  " + or_dash(event.node()) + "  " + or_dash(event.vm()) + "  " +
         clean(event.text()) + "\n";
}

std::string flyt_vms_table(const v1::ListVmsResponse& vms) {
  Table table({"VM IP", "VIRT SERVER", "SM CORES", "MEMORY (MB)", "ACTIVE"});
  for (const v1::Vm& vm : vms.vms()) {
    const v1::VirtualGpu& gpu = vm.gpu();
    const bool ready = gpu.phase() == v1::PHASE_READY;
    const std::string& address =
        vm.spec().address().empty() ? vm.spec().name() : vm.spec().address();
    const std::string server = ready ? gpu.node() + "/" + std::to_string(gpu.gpu()) : "";
    table.add({clean(address), or_dash(server),
               std::to_string(ready ? gpu.sms_granted() : vm.spec().sms()),
               std::to_string(megabytes(ready ? gpu.memory_bytes() : vm.spec().memory_bytes())),
               ready ? "true" : "false"});
  }
  return table.text();
}

std::string flyt_servernodes_table(const v1::ListNodesResponse& nodes) {
  Table table({"NODE", "GPU ID", "NAME", "MEMORY (MB)", "ALLOCATED MEMORY (MB)", "COMPUTE UNITS",
               "ALLOCATED COMPUTE UNITS"});
  for (const v1::Node& node : nodes.nodes()) {
    for (const node::v1::Gpu& gpu : node.description().gpus()) {
      table.add({clean(node.host()), std::to_string(gpu.index()), clean(gpu.name()),
                 std::to_string(megabytes(gpu.memory_bytes())),
                 std::to_string(megabytes(gpu.memory_leased_bytes())), std::to_string(gpu.sms()),
                 std::to_string(sms_leased(gpu))});
    }
  }
  return table.text();
}

std::string flyt_virt_servers_table(const v1::ListClusterLeasesResponse& leases,
                                    const v1::ListVmsResponse& vms) {
  std::map<std::string, std::string> addresses;
  for (const v1::Vm& vm : vms.vms()) addresses[vm.spec().name()] = vm.spec().address();
  Table table({"NODE", "GPU ID", "VIRT SERVER", "VM IP", "COMPUTE UNITS", "MEMORY (MB)"});
  for (const v1::ClusterLease& one : leases.leases()) {
    const std::string& address = addresses[one.vm()];
    table.add({clean(one.node()), std::to_string(one.lease().gpu()), or_dash(one.lease().id()),
               address.empty() ? or_dash(one.vm()) : clean(address),
               std::to_string(one.lease().sms_granted()),
               std::to_string(megabytes(one.lease().memory_bytes()))});
  }
  return table.text();
}

}  // namespace flyt::cli
