#include "control/settings/folders.h"

#include <unistd.h>

#include <cstdlib>

namespace flyt::control {
namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Folders user_folders(const std::string& daemon) {
  return {from_environment("HOME") + "/.local/state/flyt/" + daemon,
          "/tmp/flyt-" + daemon + "-" + std::to_string(::getuid())};
}

// A unit may have several; ours have one.
void take_first(const std::string& folders, std::string& out) {
  if (!folders.empty()) out = folders.substr(0, folders.find(':'));
}

}  // namespace

Folders system_folders(const std::string& daemon) {
  return {"/var/lib/flyt/" + daemon, daemon == "cluster" ? "/run/flyt-cluster" : "/run/flyt"};
}

Folders own_folders(const std::string& daemon) {
  const bool of_a_user = ::geteuid() != 0 && !from_environment("HOME").empty();
  Folders folders = of_a_user ? user_folders(daemon) : system_folders(daemon);
  take_first(from_environment("STATE_DIRECTORY"), folders.state);
  take_first(from_environment("RUNTIME_DIRECTORY"), folders.run);
  return folders;
}

}  // namespace flyt::control
