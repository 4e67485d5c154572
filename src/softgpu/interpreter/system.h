// Functions that the device provides: vprintf, malloc, free, __assertfail, and the device
// runtime's.
#pragma once

#include <string>
#include <string_view>

#include "softgpu/interpreter/warp.h"

namespace flyt::ptx {

// kNone where the name is no such function.
SystemCall system_call_named(std::string_view name);

// The arguments lie behind the frame of the caller, as a callee would find them; the result goes
// there too.
Flow system_call(Warp& warp, const FunctionCode& function, const CallSite& site, Mask lanes);

}  // namespace flyt::ptx
