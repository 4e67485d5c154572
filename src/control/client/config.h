// Config: what a client manager's file says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace flyt::vm {

struct Config {
  // [vm]
  std::string name;  // Where the certificate may speak for several; empty: whose it is.
  std::string host;  // The machine that this one runs on; empty: another than any node.

  // [cluster]
  std::vector<std::string> addresses;  // HOST:PORT of managers, or one unix:///PATH.
  std::string cert;
  std::string key;
  std::string ca;
  std::string crl;  // Managers' certificates that were revoked; empty: none is.

  // [programs]
  std::string socket = "/run/flyt/client.sock";
  std::vector<std::string> users;  // Names or numbers; empty: everybody.
  std::uint32_t programs_max = 1024;

  // [lease]
  std::uint32_t grace_seconds = 30;
  std::uint32_t token_seconds = 0;  // 0: as the node is configured.

  // [client]
  std::string state_folder = "/var/lib/flyt/client";
  std::string log_level = "info";
};

// An error says FILE:LINE, the key and what it should be. What is unknown is an error.
Result<Config> parse_config(std::string_view text, const std::string& file);
Result<Config> read_config(const std::string& path);
// That the files it names can be read; an error names all that cannot.
Status check_files(const Config& config);

// The numbers of [programs] users. An error names who is not known.
Result<std::vector<std::uint32_t>> users_of(const Config& config);

}  // namespace flyt::vm
