// Completion: what a shell needs to complete `flytctl` command lines.
#pragma once

#include <string>
#include <string_view>

namespace flyt::cli {

// A script for "bash", "zsh" or "fish"; empty for any other name.
std::string ctl_completion_script(std::string_view shell);

}  // namespace flyt::cli
