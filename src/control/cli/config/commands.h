// What `flytctl config` does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace flyt::cli {

struct ConfigOptions {
  std::vector<std::string> files;
  std::string program;  // "cluster", "node" or "client": whose; empty: as the file is called.
  std::string out = ".";
  std::string host;  // Empty: this machine's name.
  std::uint16_t port = 7700;
  bool json = false;
};

// kInvalid: FILE:LINE, the key and what was expected.
Status config_check(const ConfigOptions& options);
// Writes cluster.toml, node.toml and client.toml, as there are files. kDenied: one is there
// already.
Status config_import(const ConfigOptions& options);

}  // namespace flyt::cli
