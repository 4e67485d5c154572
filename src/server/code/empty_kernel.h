// A kernel that does nothing: what a driver puts off until the first launch is done with it.
#pragma once

#include "driver/table.h"

namespace flyt::server {

// In the context that is current, and returns when it has run; nothing where it cannot be had. Not
// while there is other work in the context: a driver that makes kernels' stacks larger, after
// CU_LIMIT_STACK_SIZE was set, has the next launch wait for all of it.
void run_empty_kernel(const driver::Table& driver);

}  // namespace flyt::server
