// The calls of before CUDA 3.2: their successors do the work.
#include "cuda/narrow.h"
#include "client/hooks_array.h"
#include "client/hooks_copy.h"
#include "client/hooks_device.h"
#include "client/hooks_memory.h"
#include "client/hooks_memset.h"
#include "client/hooks_module.h"
#include "client/hooks_pinned.h"
#include "client/hooks_texture_reference.h"

namespace flyt::client::hooks {

using cuda::narrowed;
using cuda::tell_narrow;
using cuda::with_wide;

#include "cuda/narrow_calls.h"

}  // namespace flyt::client::hooks
