#include "control/node/restart_pause.h"

#include <algorithm>

namespace flyt::node {
namespace {

constexpr Duration kFirst = std::chrono::milliseconds(100);
constexpr unsigned kDoublings = 8;  // At most 25.6 s.
// The rest of the time in which sessions are kept is the next server's, to start in.
constexpr int kShareOfKeeping = 5;

}  // namespace

Duration pause_after_failures(unsigned failures) {
  return kFirst * (1u << std::min(failures, kDoublings));
}

Duration pause_after_ends(unsigned ends, Duration keeps) {
  if (ends <= 1) return Duration(0);
  const Duration pause = pause_after_failures(ends);
  return keeps == Duration(0) ? pause : std::min(pause, keeps / kShareOfKeeping);
}

}  // namespace flyt::node
