// Restart pause: how long a manager waits before it starts again what has ended.
#pragma once

#include "base/clock.h"

namespace flyt::node {

// After so many starts that failed, or ends of what is nobody's to wait for, in a row.
Duration pause_after_failures(unsigned failures);

// After so many ends in a row of a server that had started well each time. Its sessions, which are
// kept for `keeps`, have to be there still when the next one has started; 0: there are none.
Duration pause_after_ends(unsigned ends, Duration keeps);

}  // namespace flyt::node
