// ClusterLink: what a client manager asks a cluster for.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "control/client/config.h"
#include "control/client/virtual_gpu.h"

namespace flyt::vm {

// Safe from any thread. Errors: kNotFound, kDenied, kInvalid: an operator has to do something;
// kLost: nobody answers now.
class ClusterLink {
 public:
  virtual ~ClusterLink() = default;

  // The machine wants its virtual GPU; with a token if it is ready. Bounded.
  virtual Result<VirtualGpu> request() = 0;
  // It does not want it any more. Bounded.
  virtual Result<VirtualGpu> release() = 0;
  // Hears how it is, at first and after each change, until the connection breaks or stop().
  virtual Error watch(const std::function<void(const VirtualGpu&)>& take) = 0;
  // Ends watch(), for ever.
  virtual void stop() = 0;
};

Result<std::unique_ptr<ClusterLink>> link_to_cluster(const Config& config);

}  // namespace flyt::vm
