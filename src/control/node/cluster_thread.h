// ClusterThread: tells a cluster manager what this node has, again and again.
#pragma once

#include <memory>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "control/node/config.h"
#include "control/node/manager.h"

namespace flyt::node {

// A cluster manager that is away changes nothing here: leases go on, and the next one hears of
// them.
class ClusterThread {
 public:
  virtual ~ClusterThread() = default;
  // Reports from its making to its end. An error: a certificate cannot be read.
  static Result<std::unique_ptr<ClusterThread>> start(const Config& config, Manager& manager,
                                                      const Log& log, std::string_view version);
};

}  // namespace flyt::node
