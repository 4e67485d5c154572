// Page tokens: who may read pages that are served in the clear, on this machine alone.
#pragma once

#include <string>

#include "control/daemon/pages_thread.h"

namespace flyt::control {

inline constexpr std::size_t kPageTokenBytesMin = 16;
inline constexpr std::size_t kPageTokenBytesMax = 256;

// Lets everybody ask /healthz, and who sends what the file has as "Authorization: Bearer ..." all.
// The file is read for each request, so that it can be replaced. No path: nobody has a token.
PageAdmission admit_token(std::string path);

}  // namespace flyt::control
