#include "control/cluster/metrics.h"

#include "control/daemon/metrics_page.h"

namespace flyt::cluster {
namespace {

using Page = control::MetricsPage;

void add_nodes(const v1::ListNodesResponse& nodes, Page& page) {
  page.family("flyt_cluster_node_up", "gauge", "1 while the node reports.");
  for (const v1::Node& node : nodes.nodes()) {
    const bool up = node.state() != v1::NODE_LOST && node.state() != v1::NODE_UNKNOWN;
    page.value({{"node", node.name()}}, up ? 1 : 0);
  }
  page.family("flyt_cluster_node_leases", "gauge", "Virtual GPUs on the node.");
  for (const v1::Node& node : nodes.nodes()) page.value({{"node", node.name()}}, node.leases());
  const auto each = [&](const char* name, const char* help, auto value) {
    page.family(name, "gauge", help);
    for (const v1::Node& node : nodes.nodes()) {
      for (const node::v1::Gpu& gpu : node.description().gpus()) {
        page.value({{"node", node.name()}, {"gpu", std::to_string(gpu.index())}}, value(gpu));
      }
    }
  };
  each("flyt_cluster_gpu_sms", "Multiprocessors.", [](const auto& gpu) { return gpu.sms(); });
  each("flyt_cluster_gpu_sms_free", "Multiprocessors that nobody has.",
       [](const auto& gpu) { return gpu.sms_free(); });
  each("flyt_cluster_gpu_memory_bytes", "Memory.",
       [](const auto& gpu) { return gpu.memory_bytes(); });
  each("flyt_cluster_gpu_memory_free_bytes", "Memory that nobody has.",
       [](const auto& gpu) { return gpu.memory_free_bytes(); });
}

void add_vms(const v1::ListVmsResponse& vms, Page& page) {
  const auto each = [&](const char* name, const char* help, auto value) {
    page.family(name, "gauge", help);
    for (const v1::Vm& vm : vms.vms()) {
      if (vm.gpu().phase() == v1::PHASE_NONE) continue;
      page.value({{"vm", vm.spec().name()}, {"node", vm.gpu().node()}}, value(vm));
    }
  };
  each("flyt_cluster_vm_ready", "1 if the VM has its virtual GPU, 0 if it waits.",
       [](const v1::Vm& vm) { return vm.gpu().phase() == v1::PHASE_READY ? 1 : 0; });
  each("flyt_cluster_vm_sms", "Multiprocessors granted.",
       [](const v1::Vm& vm) { return vm.gpu().sms_granted(); });
  each("flyt_cluster_vm_memory_bytes", "Memory quota.",
       [](const v1::Vm& vm) { return vm.gpu().memory_bytes(); });
  each("flyt_cluster_vm_memory_used_bytes", "Memory used.",
       [](const v1::Vm& vm) { return vm.memory_used_bytes(); });
  page.family("flyt_cluster_vm_busy_percent", "gauge", "Of the last while, kernels on the GPU.");
  for (const v1::Vm& vm : vms.vms()) {
    if (!vm.has_busy_percent()) continue;
    page.value({{"vm", vm.spec().name()}, {"node", vm.gpu().node()}}, vm.busy_percent());
  }
  each("flyt_cluster_vm_sessions", "Client processes.",
       [](const v1::Vm& vm) { return vm.sessions(); });
}

}  // namespace

std::string metrics_text(const v1::ClusterDescription& cluster, const v1::ListNodesResponse& nodes,
                         const v1::ListVmsResponse& vms, const ClusterCounters& counters,
                         bool healthy) {
  Page page;
  page.one("flyt_cluster_healthy", "gauge", "1 if nothing is wrong.", healthy ? 1 : 0);
  page.one("flyt_cluster_nodes", "gauge", "Nodes.", cluster.nodes());
  page.one("flyt_cluster_nodes_ready", "gauge", "Nodes that take virtual GPUs.",
           cluster.nodes_ready());
  page.one("flyt_cluster_vms", "gauge", "VMs.", cluster.vms());
  page.one("flyt_cluster_leases", "gauge", "Virtual GPUs.", cluster.leases());
  page.one("flyt_cluster_waiting", "gauge", "VMs in the queue.", cluster.waiting());
  add_nodes(nodes, page);
  add_vms(vms, page);
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    page.one(name, "counter", help, value);
  };
  counter("flyt_cluster_reports_total", "Reports of nodes.", counters.reports);
  counter("flyt_cluster_requests_total", "Requests of VMs.", counters.requests);
  counter("flyt_cluster_placed_total", "Virtual GPUs placed.", counters.placed);
  counter("flyt_cluster_refused_total", "Placements that nodes refused.", counters.refused);
  counter("flyt_cluster_released_total", "Leases released.", counters.released);
  counter("flyt_cluster_freed_total", "Virtual GPUs taken back unused.", counters.freed);
  counter("flyt_cluster_scaled_total", "Virtual GPUs grown or shrunk by use.", counters.scaled);
  counter("flyt_cluster_requirements_read_total", "Readings of the VMs' database.",
          counters.requirements_read);
  counter("flyt_cluster_requirements_failed_total", "Readings of it that failed.",
          counters.requirements_failed);
  counter("flyt_cluster_nodes_lost_total", "Nodes that were lost.", counters.nodes_lost);
  return page.take();
}

}  // namespace flyt::cluster
