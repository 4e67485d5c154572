// HostCallScope: while a function of the program runs hardly any CUDA call is allowed.
#pragma once

#include "client/context.h"

namespace flyt::client {

class HostCallScope {
 public:
  explicit HostCallScope(HostCall kind) { thread_state().host_call = kind; }
  ~HostCallScope() { thread_state().host_call = HostCall::kNone; }
  HostCallScope(const HostCallScope&) = delete;
  HostCallScope& operator=(const HostCallScope&) = delete;
};

}  // namespace flyt::client
