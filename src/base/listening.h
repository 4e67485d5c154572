// What to do where an address to listen at is taken.
#pragma once

#include <string_view>

#include "base/result.h"

namespace flyt {

// Whether it is the error of who could not listen because the address is another process's.
bool is_taken(const Error& error);

// The error of who could not listen, with advice if the address is another process's. `setting`:
// the option or the key of the configuration that names it.
Error with_listening_advice(Error error, std::string_view setting);

}  // namespace flyt
