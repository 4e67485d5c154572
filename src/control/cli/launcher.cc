#include "control/cli/launcher.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "control/client/server_info.h"

namespace flyt::cli {
namespace {

std::string environment(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Result<std::string> client_library_folder() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error{ErrorCode::kSystem, "cannot find this program: " + error.message()};
  const auto folder = self.parent_path().parent_path() / "lib" / "client";
  if (!std::filesystem::exists(folder / "libcuda.so.1", error)) {
    return Error{ErrorCode::kNotFound, "the client library is not where it should be: " +
                                           (folder / "libcuda.so.1").string()};
  }
  return folder.string();
}

Status prepare(const RunOptions& options) {
  const std::string server = options.server.empty() ? environment("FLYT_SERVER") : options.server;
  if (server.empty()) {
    return Error{ErrorCode::kInvalid, "no server: give --server URL or set FLYT_SERVER"};
  }
  auto folder = client_library_folder();
  if (!folder) return std::move(folder).error();
  if (!options.token_file.empty()) {
    std::error_code error;
    const auto path = std::filesystem::absolute(options.token_file, error);
    // The program may go elsewhere before it reads the file.
    ::setenv("FLYT_TOKEN_FILE", error ? options.token_file.c_str() : path.c_str(), 1);
    ::unsetenv("FLYT_TOKEN");
  }
  const auto info = control::greet(server);
  if (!info) return info.error();
  const std::string path = environment("LD_LIBRARY_PATH");
  const std::string libraries = path.empty() ? *folder : *folder + ":" + path;
  ::setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
  ::setenv("FLYT_SERVER", server.c_str(), 1);
  if (options.verbose) {
    if (environment("FLYT_LOG").empty()) ::setenv("FLYT_LOG", "info", 1);
    Log("flyt", LogLevel::kInfo)
        .info("running", {{"program", options.command.front()},
                          {"server", server},
                          {"driver", info->driver},
                          {"libraries", *folder}});
  }
  return {};
}

Error execute(const std::vector<std::string>& command) {
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  return system_error("cannot run " + command.front(), errno);
}

Error run(const RunOptions& options) {
  const Status prepared = prepare(options);
  return prepared ? execute(options.command) : prepared.error();
}

}  // namespace flyt::cli
