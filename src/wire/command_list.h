// CommandList: command types, one after the other.
//
// A std::tuple of hundreds of types takes minutes to compile.
#pragma once

namespace flyt::wire {

template <class... Commands>
struct CommandList {
  // Calls visit.operator()<Command>() for each.
  template <class Visit>
  static void each(Visit&& visit) {
    // Not a fold, which would nest as deep as there are commands: clang stops at 256.
    const bool visited[] = {(visit.template operator()<Commands>(), true)...};
    static_cast<void>(visited);
  }
};

}  // namespace flyt::wire
