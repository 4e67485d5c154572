// Completion: what a shell needs to complete `flytctl` command lines.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flyt::cli {

// Options, "--name", whose values are among few, by the command: the first word of flytctl.
using Choices = std::map<std::string, std::map<std::string, std::vector<std::string>>, std::less<>>;

// A script for "bash", "zsh" or "fish"; empty for any other name.
std::string ctl_completion_script(std::string_view shell, const Choices& choices);

}  // namespace flyt::cli
