// Source: a database of VMs' requirements, read whole, again and again.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "control/cluster/requirements/requirement.h"

namespace flyt::cluster::requirements {

// One thread's.
class Source {
 public:
  virtual ~Source() = default;
  // All of it, or the reason why not; in a bounded time, and soon where `stopping` is true.
  virtual Result<Answer> read(const std::function<bool()>& stopping) = 0;
};

using MakeSource = std::function<Result<std::unique_ptr<Source>>()>;

}  // namespace flyt::cluster::requirements
