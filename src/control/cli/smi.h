// Smi: what operators want to know of the GPUs that a server shows, as NVML tells it.
#pragma once

#include <string>

#include "base/result.h"

namespace flyt::cli {

// A table for people, or one JSON object. Uses the client library beside this program.
Result<std::string> smi(const std::string& server, bool json);

}  // namespace flyt::cli
