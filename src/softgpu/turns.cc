#include "softgpu/turns.h"

namespace flyt::softgpu {
namespace {

// lint: allow(globals): a process has one driver.
std::shared_mutex turns;
// lint: allow(globals): whether this thread loads.
thread_local bool loading = false;

}  // namespace

std::shared_lock<std::shared_mutex> turn_of_call(const Settings& settings) {
  return settings.loads_wait && !loading ? std::shared_lock(turns)
                                         : std::shared_lock<std::shared_mutex>();
}

LoadTurn::LoadTurn(const Settings& settings) {
  if (!settings.loads_wait || loading) return;
  lock_ = std::unique_lock(turns);
  loading = true;
}

LoadTurn::~LoadTurn() {
  if (lock_.owns_lock()) loading = false;
}

}  // namespace flyt::softgpu
