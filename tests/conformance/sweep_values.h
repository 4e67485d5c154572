// Which values a sweep gives to each parameter of a call: a plausible one first, then others.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/sweep_scene.h"

namespace flyt::conformance {

// Another value of one parameter, or of a member of what it points to.
struct Alternative {
  std::string label;  // "bytesize=0"
  std::size_t parameter;
  Argument argument;
  // A null where a driver may look without asking: the last to be tried.
  bool null = false;
};

std::vector<Argument> plausible_arguments(Scene& scene, const SweptCall& call);

// In an order that depends on the call alone, not on the scene.
std::vector<Alternative> alternatives(Scene& scene, const SweptCall& call,
                                      const std::vector<Argument>& plausible);

}  // namespace flyt::conformance
