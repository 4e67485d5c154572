// New files: keys and certificates, complete or not there at all.
#pragma once

#include <string>

#include "base/result.h"

namespace flyt::cli {

// kDenied: it is there, and is not to be replaced. It has that mode at every moment.
Status write_file(const std::string& path, const std::string& text, unsigned mode, bool replace);

}  // namespace flyt::cli
