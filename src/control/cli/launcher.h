// Launcher: starts a program so that it finds its GPU at a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace flyt::cli {

struct RunOptions {
  std::string server;      // A URL; empty: FLYT_SERVER of the environment.
  std::string token_file;  // What holds the token; empty: as the environment says.
  bool verbose = false;
  std::uint32_t wait_seconds = 600;  // For a GPU of this machine's client manager.
  std::vector<std::string> command;  // The program and its arguments.
};

// What `flyt run` exits with where the program never ran, as shells do.
inline constexpr int kExitNotStarted = 127;

// Checks that a server answers at the address, and sets the environment in which the program finds
// it.
Status prepare(const RunOptions& options);

// Becomes the command. Returns only if that is impossible.
Error execute(const std::vector<std::string>& command);

// Checks that a server answers at the address, then becomes the program. Returns only if that is
// impossible, with one line that says why.
Error run(const RunOptions& options);

// The folder with our libcuda.so.1, found from where this program is.
Result<std::string> client_library_folder();

}  // namespace flyt::cli
