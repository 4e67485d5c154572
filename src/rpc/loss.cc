#include "rpc/loss.h"

#include <utility>

namespace flyt::rpc {

void Loss::declare_as(Error error, bool cut) {
  if (lost()) return;  // After a fork nobody may ever let go of the lock.
  {
    const Lock telling(telling_);
    if (lost()) return;
    {
      const Lock lock(mutex_);
      cut_.store(cut, std::memory_order_release);
      error_ = error;
    }
    pushes_.on_lost(error);
    state_.fetch_or(kLost, std::memory_order_release);
  }
  connection_.shut_down();
  if (end_) end_();
}

void Loss::suspect(Error error) {
  {
    const Lock lock(mutex_);
    if (!suspected_) suspected_ = std::move(error);
  }
  connection_.shut_down();
}

void Loss::declare_end(Error error) {
  {
    const Lock lock(mutex_);
    if (suspected_) error = *suspected_;
  }
  const bool cut = error.code == ErrorCode::kLost;
  declare_as(std::move(error), cut);
}

Error Loss::error() const {
  if (abandoned()) return Error{ErrorCode::kLost, "the session belongs to the parent process"};
  const Lock lock(mutex_);
  return error_;
}

}  // namespace flyt::rpc
