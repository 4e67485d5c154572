// Credential: what a client shows a server to be let in.
#pragma once

#include <string>

#include "base/result.h"

namespace flyt::rpc {

// FLYT_TOKEN, or what the file named by FLYT_TOKEN_FILE holds now: whoever renews it replaces the
// file. Empty if neither is set.
Result<std::string> own_credential();

}  // namespace flyt::rpc
