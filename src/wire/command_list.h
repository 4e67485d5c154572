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
    (visit.template operator()<Commands>(), ...);
  }
};

}  // namespace flyt::wire
