// Folders: where a daemon keeps what it knows, and its sockets, unless it is told.
#pragma once

#include <string>

namespace flyt::control {

struct Folders {
  std::string state;
  std::string run;
};

// Of the machine's daemon: "node" or "cluster".
Folders system_folders(const std::string& daemon);

// Of this process: what systemd has made for its unit (systemd.exec(5): StateDirectory=,
// RuntimeDirectory=); else the machine's, if root runs it, or its user's.
Folders own_folders(const std::string& daemon);

}  // namespace flyt::control
