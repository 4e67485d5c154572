// Plain integer conversions, which other families need too.
#pragma once

#include "softgpu/interpreter/types.h"

namespace flyt::ptx {

// d = a, cut or extended by the sign of `from`; null where a type is no integer.
Handler cast_handler(Type to, Type from);

}  // namespace flyt::ptx
