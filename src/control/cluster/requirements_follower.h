// RequirementsFollower: keeps a manager's VMs as a database says.
#pragma once

#include <set>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "control/cluster/manager.h"
#include "control/cluster/requirements/source.h"

namespace flyt::cluster {

// One thread's.
class RequirementsFollower {
 public:
  // `where` is told in what goes wrong. The manager outlives it.
  RequirementsFollower(Manager& manager, requirements::MakeSource make, std::string where,
                       const Log& log)
      : manager_(manager), make_(std::move(make)), where_(std::move(where)), log_(log) {}

  // Reads once.
  void step();
  // Reads every `period` until the manager is told to stop.
  void follow(Duration period);

 private:
  Result<requirements::Answer> read();
  void tell(const std::set<requirements::Skipped>& skipped, std::size_t more);

  Manager& manager_;
  const requirements::MakeSource make_;
  const std::string where_;
  const Log log_;
  std::unique_ptr<requirements::Source> source_;
  std::set<requirements::Skipped> told_;
};

}  // namespace flyt::cluster
