#include "control/node/metrics.h"

#include <map>

#include "control/daemon/metrics_page.h"

namespace flyt::node {
namespace {

using Page = control::MetricsPage;

Page::Labels labels_of(const GpuView& gpu) {
  return {{"gpu", std::to_string(gpu.gpu.index)}, {"uuid", gpu.gpu.uuid}};
}

Page::Labels labels_of(const LeaseView& lease) {
  return {{"lease", lease.lease.id},
          {"name", lease.lease.name},
          {"gpu", std::to_string(lease.lease.grant.gpu)}};
}

void add_gpus(const NodeView& node, Page& page) {
  const auto each = [&](const char* name, const char* help, auto value) {
    page.family(name, "gauge", help);
    for (const GpuView& gpu : node.gpus) page.value(labels_of(gpu), value(gpu));
  };
  each("flyt_gpu_sms", "Multiprocessors.", [](const GpuView& gpu) { return gpu.gpu.sms(); });
  each("flyt_gpu_sms_leased", "Multiprocessors in groups of leases; in those of two, twice.",
       [](const GpuView& gpu) {
         std::uint32_t sms = 0;
         for (std::size_t i = 0; i < gpu.holder_counts.size(); ++i) {
           sms += gpu.holder_counts[i] * gpu.gpu.groups[i];
         }
         return sms;
       });
  each("flyt_gpu_memory_bytes", "Memory.", [](const GpuView& gpu) { return gpu.gpu.memory_bytes; });
  each("flyt_gpu_memory_leased_bytes", "Quotas of leases.",
       [](const GpuView& gpu) { return gpu.quota_bytes; });
  each("flyt_gpu_memory_overhead_bytes", "Memory kept back for contexts.",
       [](const GpuView& gpu) { return gpu.overhead_bytes; });
  each("flyt_gpu_failed", "1 if it is of no use any more.",
       [](const GpuView& gpu) { return gpu.failed.empty() ? 0 : 1; });
  each("flyt_gpu_leases", "Leases on it.", [](const GpuView& gpu) { return gpu.leases; });
  each("flyt_gpu_sessions_max", "How many sessions it takes; 0: any number.",
       [](const GpuView& gpu) { return gpu.sessions_max; });
  each("flyt_gpu_sessions_taken", "Of these, with processes that are ready or come back.",
       [](const GpuView& gpu) { return gpu.sessions.used(); });
}

// Of each GPU, what its leases have at the moment.
void add_gpu_use(const NodeView& node, const std::vector<LeaseView>& leases, Page& page) {
  const auto each = [&](const char* name, const char* help, auto value) {
    page.family(name, "gauge", help);
    for (const GpuView& gpu : node.gpus) {
      std::uint64_t sum = 0;
      for (const LeaseView& lease : leases) {
        if (lease.lease.grant.gpu == gpu.gpu.index && lease.use) sum += value(*lease.use);
      }
      page.value(labels_of(gpu), sum);
    }
  };
  each("flyt_gpu_memory_used_bytes", "Memory used by leases.",
       [](const LeaseUse& use) { return use.memory_bytes; });
  each("flyt_gpu_sessions", "Client processes.", [](const LeaseUse& use) { return use.sessions; });
}

void add_gpu_refusals(const NodeView& node, Page& page) {
  page.family("flyt_gpu_sessions_refused_total", "counter", "Sessions for which it had no room.");
  for (const GpuView& gpu : node.gpus) page.value(labels_of(gpu), gpu.refused);
}

// Numbers that are no program's are there before they come, so that the first one is a rise.
void add_gpu_xids(const NodeView& node, Page& page) {
  page.family("flyt_gpu_xid_total", "counter", "Errors that the driver has numbered.");
  for (const GpuView& gpu : node.gpus) {
    XidCounts counts = gpu.xids;
    for (const XidFacts& facts : known_xids()) {
      if (facts.kind != XidKind::kProgram) counts.emplace(facts.number, 0);
    }
    for (const auto& [number, times] : counts) {
      Page::Labels labels = labels_of(gpu);
      labels.emplace_back("xid", number == kOtherXids ? "other" : std::to_string(number));
      page.value(labels, times);
    }
  }
}

void add_gpu_totals(const NodeView& node, Page& page) {
  const auto each = [&](const char* name, const char* help, auto member) {
    page.family(name, "counter", help);
    for (const GpuView& gpu : node.gpus) page.value(labels_of(gpu), gpu.totals.*member);
  };
  each("flyt_gpu_launches_total", "Kernels launched.", &GpuTotals::launches);
  each("flyt_gpu_posted_total", "Commands without an answer.", &GpuTotals::posted);
  each("flyt_gpu_waited_total", "Commands with an answer.", &GpuTotals::waited);
  each("flyt_gpu_received_bytes_total", "Bytes of commands.", &GpuTotals::received_bytes);
  each("flyt_gpu_moves_total", "Changes of leases' groups under running programs.",
       &GpuTotals::moves);
  each("flyt_gpu_recoveries_total", "Sessions that another process has gone on with.",
       &GpuTotals::returns);
  each("flyt_gpu_faults_total", "Kernels that faulted, of a known program.", &GpuTotals::caused);
  each("flyt_gpu_faults_suspected_total", "Programs one of which had a kernel that faulted.",
       &GpuTotals::suspected);
}

void add_leases(const std::vector<LeaseView>& leases, Page& page) {
  const auto each = [&](const char* name, const char* kind, const char* help, auto value) {
    page.family(name, kind, help);
    for (const LeaseView& lease : leases) page.value(labels_of(lease), value(lease));
  };
  each("flyt_lease_up", "gauge", "1 while the lease's server runs.", [](const LeaseView& view) {
    return view.lease.state == LeaseState::kRunning && view.use ? 1 : 0;
  });
  each("flyt_lease_sms", "gauge", "Multiprocessors granted.",
       [](const LeaseView& view) { return view.lease.grant.sms; });
  each("flyt_lease_memory_bytes", "gauge", "Memory quota.",
       [](const LeaseView& view) { return view.lease.grant.memory_bytes; });
  each("flyt_lease_memory_used_bytes", "gauge", "Memory used.",
       [](const LeaseView& view) { return view.use ? view.use->memory_bytes : 0; });
  each("flyt_lease_sessions", "gauge", "Client processes.",
       [](const LeaseView& view) { return view.use ? view.use->sessions : 0; });
  each("flyt_lease_sessions_behind", "gauge", "Client processes that have not moved to the groups.",
       [](const LeaseView& view) { return view.use ? view.use->behind : 0; });
  each("flyt_lease_moves_total", "counter", "Changes of the groups under running programs.",
       [](const LeaseView& view) { return view.use ? view.use->moves : 0; });
  each("flyt_lease_last_move_microseconds", "gauge", "How long the last of these took.",
       [](const LeaseView& view) {
         return view.use
                    ? std::chrono::duration_cast<std::chrono::microseconds>(view.use->last_move)
                          .count()
                    : 0;
       });
  each("flyt_lease_server_restarts_total", "counter", "Servers that died and were replaced.",
       [](const LeaseView& view) { return view.lease.restarts; });
}

void add_lease_counters(const std::vector<LeaseView>& leases, Page& page) {
  // Of the use that is told; 0 where none is.
  const auto each = [&](const char* name, const char* help, auto value) {
    page.family(name, "counter", help);
    for (const LeaseView& lease : leases) {
      page.value(labels_of(lease), lease.use ? value(*lease.use) : 0);
    }
  };
  const auto microseconds = [&each](const char* name, const char* help, auto member) {
    each(name, help, [member](const LeaseUse& use) {
      return std::chrono::duration_cast<std::chrono::microseconds>(use.work.*member).count();
    });
  };
  using control::UseState;
  microseconds("flyt_lease_busy_microseconds_total", "Kernels on the GPU, summed over sessions.",
               &UseState::busy);
  microseconds("flyt_lease_queued_microseconds_total", "And many more waiting in one stream.",
               &UseState::queued);
  const auto faults = [&each](const char* name, const char* help, auto member) {
    each(name, help, [member](const LeaseUse& use) { return use.faults.*member; });
  };
  using control::FaultsState;
  faults("flyt_lease_faults_total", "Kernels of a program of it that faulted.",
         &FaultsState::caused);
  faults("flyt_lease_faults_suspected_total", "On a shared GPU, of one of it, or of another lease.",
         &FaultsState::suspected);
  faults("flyt_lease_faults_survived_total", "Sessions that others' faults have not stopped.",
         &FaultsState::survived);
  faults("flyt_lease_faults_lost_total", "Sessions that others' faults have cost something.",
         &FaultsState::lost);
  each("flyt_lease_launches_total", "Kernels launched.",
       [](const LeaseUse& use) { return use.work.launches; });
  each("flyt_lease_posted_total", "Commands without an answer.",
       [](const LeaseUse& use) { return use.totals.posted; });
  each("flyt_lease_waited_total", "Commands with an answer.",
       [](const LeaseUse& use) { return use.totals.waited; });
  each("flyt_lease_received_bytes_total", "Bytes of commands.",
       [](const LeaseUse& use) { return use.totals.received_bytes; });
  each("flyt_lease_recoveries_total", "Sessions that another process has gone on with.",
       [](const LeaseUse& use) { return use.totals.returns; });
}

// Of the sessions that live: the sums fall when one ends.
void add_sessions(const std::vector<LeaseView>& leases, const std::vector<SessionView>& sessions,
                  Page& page) {
  const auto each = [&](const char* name, const char* help, auto value) {
    std::map<std::string, std::uint64_t> sums;
    for (const SessionView& view : sessions) sums[view.lease_id] += value(view.session);
    page.family(name, "gauge", help);
    for (const LeaseView& lease : leases) page.value(labels_of(lease), sums[lease.lease.id]);
  };
  using State = control::SessionState;
  each("flyt_lease_launches", "Kernels launched by present sessions.",
       [](const State& state) { return state.launches; });
  each("flyt_lease_posted", "Commands without an answer, of present sessions.",
       [](const State& state) { return state.posted; });
  each("flyt_lease_waited", "Commands with an answer, of present sessions.",
       [](const State& state) { return state.waited; });
}

}  // namespace

std::string metrics_text(const NodeView& node, const std::vector<LeaseView>& leases,
                         const std::vector<SessionView>& sessions, const Counters& counters,
                         bool healthy) {
  Page page;
  page.one("flyt_node_healthy", "gauge", "1 if nothing is wrong.", healthy ? 1 : 0);
  page.one("flyt_node_draining", "gauge", "1 while no new leases are made.", node.draining ? 1 : 0);
  page.one("flyt_node_leases", "gauge", "Leases.", node.leases);
  add_gpus(node, page);
  add_gpu_use(node, leases, page);
  add_gpu_refusals(node, page);
  add_gpu_xids(node, page);
  add_gpu_totals(node, page);
  add_leases(leases, page);
  add_lease_counters(leases, page);
  add_sessions(leases, sessions, page);
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    page.one(name, "counter", help, value);
  };
  counter("flyt_node_leases_created_total", "Leases made.", counters.created);
  counter("flyt_node_leases_refused_total", "Requests that did not fit.", counters.refused);
  counter("flyt_node_leases_resized_total", "Leases resized.", counters.resized);
  counter("flyt_node_leases_moved_total", "Leases moved to groups side by side.", counters.moved);
  counter("flyt_node_leases_released_total", "Leases released.", counters.released);
  counter("flyt_node_leases_expired_total", "Leases that expired.", counters.expired);
  counter("flyt_node_server_deaths_total", "Servers of leases that died.", counters.server_deaths);
  counter("flyt_node_tokens_total", "Tokens issued.", counters.tokens);
  return page.take();
}

}  // namespace flyt::node
