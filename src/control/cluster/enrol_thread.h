// EnrolThread: where machines that have no certificate yet get one for a token.
#pragma once

#include <memory>

#include "base/log.h"
#include "base/result.h"
#include "control/cluster/config.h"
#include "control/cluster/council.h"

namespace flyt::cluster {

// Serves until its end; nothing, where it is not configured.
class EnrolThread {
 public:
  static Result<std::unique_ptr<EnrolThread>> start(const Config& config, Chair& chair,
                                                    const Log& log);
  virtual ~EnrolThread() = default;
};

}  // namespace flyt::cluster
