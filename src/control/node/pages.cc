#include "control/node/pages.h"

#include "control/daemon/metrics_page.h"
#include "control/node/metrics.h"

namespace flyt::node {
namespace {

using control::Page;
using control::PageRequest;

Page metrics(Manager& manager) {
  auto sessions = manager.sessions({});
  // These are counted into what GPUs have done.
  const std::vector<LeaseView> leases = manager.leases();
  return {.text = metrics_text(manager.describe(), leases,
                               sessions ? *sessions : std::vector<SessionView>{},
                               manager.counters(), manager.problems().empty()),
          .type = std::string(control::kMetricsType)};
}

Page health(Manager& manager) {
  std::string text;
  for (const std::string& problem : manager.problems()) text += problem + "\n";
  if (text.empty()) return {.text = "ok\n"};
  return {.text = text, .status = 503};
}

}  // namespace

control::PageMap pages_of(Manager& manager) {
  control::PageMap map;
  map.pages = {{"/metrics", [&manager](const PageRequest&) { return metrics(manager); }},
               {"/healthz", [&manager](const PageRequest&) { return health(manager); }}};
  return map;
}

}  // namespace flyt::node
