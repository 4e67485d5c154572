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

}  // namespace

control::PageMap pages_of(Manager& manager) {
  control::PageMap map;
  map.pages = {{"/metrics", [&manager](const PageRequest&) { return metrics(manager); }},
               {"/healthz", [](const PageRequest&) { return Page{.text = "ok\n"}; }},
               {"/readyz", [&manager](const PageRequest&) { return ready(manager); }}};
  return map;
}

}  // namespace flyt::cluster
