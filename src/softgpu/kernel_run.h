// Runs kernels: on the calling thread and the driver's workers.
#pragma once

#include "softgpu/launch.h"

namespace flyt::softgpu {

// Returns when the kernel has ended, and all that it has launched itself. A fault becomes the
// context's.
void run_kernel(Driver& driver, Context& context, const Function& function, ptx::Launch launch,
                const ImageBindings& bindings, const SetConditional& set_conditional);

}  // namespace flyt::softgpu
