#include "client/code_turns.h"

#include <mutex>

namespace flyt::client {

CodeTurns::Turn CodeTurns::take(unsigned State::*mine, unsigned State::*others) {
  const std::shared_ptr<State> state = state_;
  {
    std::unique_lock<Mutex> lock(state->mutex);
    static_cast<void>(
        state->changed.wait_for(lock, kPatience, [&] { return (*state).*others == 0; }));
    ++((*state).*mine);
  }
  return Turn(state.get(), [state, mine](void*) {
    {
      const Lock lock(state->mutex);
      --((*state).*mine);
    }
    state->changed.notify_all();
  });
}

}  // namespace flyt::client
