// ApiThread: a manager's gRPC API: on a Unix socket for users that the system vouches for, and on
// TCP for those with a certificate.
#pragma once

#include <memory>

#include "base/log.h"
#include "base/result.h"
#include "control/node/config.h"
#include "control/node/manager.h"

namespace flyt::node {

class ApiThread {
 public:
  virtual ~ApiThread() = default;
  // Serves from now until its end, which waits a second at most for calls that are under way.
  static Result<std::unique_ptr<ApiThread>> start(const Config& config, Manager& manager,
                                                  const Log& log, std::string_view version);
};

}  // namespace flyt::node
