// ApiThread: a cluster manager's gRPC API: on a Unix socket for users that the system vouches for,
// and on TCP for those with a certificate.
#pragma once

#include <memory>

#include "base/log.h"
#include "base/result.h"
#include "control/cluster/config.h"
#include "control/cluster/council.h"
#include "control/cluster/gate.h"

namespace flyt::cluster {

class ApiThread {
 public:
  virtual ~ApiThread() = default;
  // Serves from now until its end, which waits a second at most for calls that are under way.
  static Result<std::unique_ptr<ApiThread>> start(const Config& config, Chair& chair, Gate& gate,
                                                  const Log& log, std::string_view version);
};

}  // namespace flyt::cluster
