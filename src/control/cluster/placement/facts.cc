#include "control/cluster/placement/facts.h"

namespace flyt::placement {

std::string_view to_string(NodeState state) {
  switch (state) {
    case NodeState::kReady:
      return "ready";
    case NodeState::kCordoned:
      return "cordoned";
    case NodeState::kDraining:
      return "draining";
    case NodeState::kLost:
      return "lost";
  }
  return "unknown";
}

std::string_view to_string(GpuMode mode) {
  switch (mode) {
    case GpuMode::kIsolated:
      return "isolated";
    case GpuMode::kShared:
      return "shared";
  }
  return "unknown";
}

std::string_view to_string(Policy policy) {
  switch (policy) {
    case Policy::kPack:
      return "pack";
    case Policy::kSpread:
      return "spread";
    case Policy::kHostFirst:
      return "host-first";
  }
  return "unknown";
}

std::optional<Policy> policy_of(std::string_view text) {
  for (const Policy policy : {Policy::kPack, Policy::kSpread, Policy::kHostFirst}) {
    if (text == to_string(policy)) return policy;
  }
  return std::nullopt;
}

}  // namespace flyt::placement
