// Pages: what a cluster manager tells over HTTP.
#pragma once

#include <memory>
#include <string_view>

#include "control/cluster/council.h"
#include "control/cluster/gate.h"
#include "control/daemon/pages_thread.h"

namespace flyt::cluster {

// The same of a manager that is one of several.
control::PageMap pages_of(Chair& chair);

// /metrics, /healthz and /readyz. The manager outlives it.
control::PageMap pages_of(Manager& manager);

// All that is served, from its making to its end: `map` at metrics.listen, in the clear, to who has
// the token; at page.listen also the web page and its documents, to viewers' certificates. What is
// named here outlives it.
class ClusterPages {
 public:
  virtual ~ClusterPages() = default;
  static Result<std::unique_ptr<ClusterPages>> start(const Config& config,
                                                     const control::PageMap& map, Chair& chair,
                                                     Gate& gate, const Log& log,
                                                     std::string_view version);
};

}  // namespace flyt::cluster
