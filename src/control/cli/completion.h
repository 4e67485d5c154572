// Completion: what a shell needs to complete `flyt` command lines.
#pragma once

#include <string>
#include <string_view>

namespace flyt::cli {

// A script for "bash", "zsh" or "fish"; empty for any other name.
std::string completion_script(std::string_view shell);

}  // namespace flyt::cli
