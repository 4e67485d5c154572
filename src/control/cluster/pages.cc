#include "control/cluster/pages.h"

#include "control/cluster/metrics.h"
#include "control/daemon/metrics_page.h"

namespace flyt::cluster {
namespace {

using control::Page;
using control::PageRequest;

Page metrics(Manager& manager) {
  const auto nodes = manager.nodes("");
  const auto vms = manager.vms("");
  return {.text = metrics_text(manager.describe(), nodes ? *nodes : v1::ListNodesResponse(),
                               vms ? *vms : v1::ListVmsResponse(), manager.counters(),
                               manager.problems().empty()),
          .type = std::string(control::kMetricsType)};
}

// Ready: the state can be written, and some node takes virtual GPUs.
Page ready(Manager& manager) {
  if (!manager.writable()) return {.text = "the state cannot be written\n", .status = 503};
  if (manager.describe().nodes_ready() == 0) {
    return {.text = "no node takes virtual GPUs\n", .status = 503};
  }
  return {.text = "ok\n"};
}

Page council_metrics(Chair& chair) {
  const Answerer who = chair.answerer();
  const bool decides = who.here && who.here->decides();
  control::MetricsPage page;
  page.one("flyt_cluster_decides", "gauge", "1 if this manager decides.", decides ? 1 : 0);
  page.one("flyt_cluster_leader_known", "gauge", "1 if some manager decides, as far as is known.",
           decides || who.leader ? 1 : 0);
  page.one("flyt_cluster_etcd_answers", "gauge", "1 if etcd answered last.",
           who.problem.empty() ? 1 : 0);
  const auto known = decides ? who.here : chair.known();
  Page all = known ? metrics(*known) : Page{.type = std::string(control::kMetricsType)};
  all.text += page.take();
  return all;
}

// Ready: questions and changes are answered, here or by who decides.
Page council_ready(Chair& chair) {
  const Answerer who = chair.answerer();
  if (!who.problem.empty()) return {.text = who.problem + "\n", .status = 503};
  if (who.here) return ready(*who.here);
  if (who.leader) return {.text = "ok: " + who.leader->name() + " decides\n"};
  return {.text = who.why + "\n", .status = 503};
}

}  // namespace

control::PageMap pages_of(Chair& chair) {
  control::PageMap map;
  map.pages = {{"/metrics", [&chair](const PageRequest&) { return council_metrics(chair); }},
               {"/healthz", [](const PageRequest&) { return Page{.text = "ok\n"}; }},
               {"/readyz", [&chair](const PageRequest&) { return council_ready(chair); }}};
  return map;
}

control::PageMap pages_of(Manager& manager) {
  control::PageMap map;
  map.pages = {{"/metrics", [&manager](const PageRequest&) { return metrics(manager); }},
               {"/healthz", [](const PageRequest&) { return Page{.text = "ok\n"}; }},
               {"/readyz", [&manager](const PageRequest&) { return ready(manager); }}};
  return map;
}

}  // namespace flyt::cluster
