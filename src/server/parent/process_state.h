// Process state: whether another process of the server, which need not be a child, has ended.
#pragma once

#include <sys/types.h>

namespace flyt::server {

// Nothing of it runs any more, on the GPU neither: it is gone, or what is left of it is for its
// parent to collect.
bool has_ended(pid_t process);
// It has no memory any more, so that none of its threads will ever run; its driver may still be
// letting go of the GPU, which takes long.
bool is_ending(pid_t process);

}  // namespace flyt::server
