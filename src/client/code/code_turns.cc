#include "client/code/code_turns.h"

#include <mutex>

namespace flyt::client {

CodeTurns::Turn CodeTurns::take(Places State::*mine, Places State::*others) {
  const std::shared_ptr<State> state = state_;
  std::uint64_t place = 0;
  {
    const Lock lock(state->mutex);
    place = state->next++;
    ((*state).*mine).insert(place);
  }
  {
    std::unique_lock<Mutex> lock(state->mutex);
    static_cast<void>(state->changed.wait_for(lock, kPatience, [&] {
      const Places& before = (*state).*others;
      return before.empty() || *before.begin() > place;
    }));
  }
  return Turn(state.get(), [state, mine, place](void*) {
    {
      const Lock lock(state->mutex);
      ((*state).*mine).erase(place);
    }
    state->changed.notify_all();
  });
}

}  // namespace flyt::client
