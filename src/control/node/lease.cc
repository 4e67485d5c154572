#include "control/node/lease.h"

namespace flyt::node {

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kIsolated:
      return "isolated";
    case Mode::kShared:
      return "shared";
  }
  return "isolated";
}

std::optional<Mode> mode_of(std::string_view text) {
  for (const Mode mode : {Mode::kIsolated, Mode::kShared}) {
    if (text == to_string(mode)) return mode;
  }
  return std::nullopt;
}

std::string_view to_string(LeaseState state) {
  switch (state) {
    case LeaseState::kStarting:
      return "starting";
    case LeaseState::kRunning:
      return "running";
    case LeaseState::kRestarting:
      return "restarting";
    case LeaseState::kLost:
      return "lost";
    case LeaseState::kEnding:
      return "ending";
  }
  return "lost";
}

}  // namespace flyt::node
