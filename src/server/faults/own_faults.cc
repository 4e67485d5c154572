#include "server/faults/own_faults.h"

#include <unistd.h>

#include "server/faults/fault_board.h"
#include "server/lease/usage_board.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server {

void OwnFaults::see(CUresult result) {
  if (!is_gpu_fault(result) || seen_.exchange(true)) return;
  const auto error = static_cast<std::uint32_t>(result);
  own_usage().note_suspect({.error = error, .suspects = 1, .goes_on = true});
  Recovery* const recovery = session_.recovery();
  const bool returns = recovery != nullptr && recovery->may_go_on();
  session_.log().warn("the session's work faulted",
                      {{"pid", ::getpid()}, {"error", error}, {"returns", returns}});
  if (!returns) return;
  recovery->marks().set_fault(error);
  // What the kernel has printed.
  session_.flush_before_reply();
  ::_exit(kExitGpuFault);
}

}  // namespace flyt::server
