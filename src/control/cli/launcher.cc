#include "control/cli/launcher.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/log.h"
#include "control/client/gpu_queue.h"
#include "control/client/server_info.h"

namespace flyt::cli {
namespace {

std::string environment(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

void put_in_front(const std::string& folder) {
  const std::string path = environment("LD_LIBRARY_PATH");
  const std::string libraries = path.empty() ? folder : folder + ":" + path;
  ::setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
}

// The program asks for the GPU itself, and has it as long as it runs; here it is only awaited,
// where somebody can be told for what.
Status await_gpu(std::uint32_t seconds) {
  const auto tell = [](const control::GpuQueue& queue) {
    std::cerr << "flyt: waiting for a GPU: " << queue.ahead << " ahead of you"
              << (queue.why.empty() ? "" : "; " + queue.why) << std::endl;
  };
  return control::await_gpu(std::chrono::seconds(seconds), tell);
}

}  // namespace

Result<std::string> client_library_folder() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error{ErrorCode::kSystem, "cannot find this program: " + error.message()};
  // In a build or bundle, and where packages put it.
  const auto lib = self.parent_path().parent_path() / "lib";
  for (const auto& folder : {lib / "client", lib / "flyt" / "client"}) {
    if (std::filesystem::exists(folder / "libcuda.so.1", error)) return folder.string();
  }
  return Error{ErrorCode::kNotFound, "the client library is not where it should be: " +
                                         (lib / "client" / "libcuda.so.1").string()};
}

Status prepare(const RunOptions& options) {
  const std::string server = options.server.empty() ? environment("FLYT_SERVER") : options.server;
  const bool from_cluster = server.empty() && control::has_client_manager();
  if (server.empty() && !from_cluster) {
    return Error{
        ErrorCode::kInvalid,
        "no server: give --server URL or set FLYT_SERVER; or run flyt-client-manager, which has"
        " a virtual GPU for this machine's programs"};
  }
  auto folder = client_library_folder();
  if (!folder) return std::move(folder).error();
  if (from_cluster) {
    if (Status status = await_gpu(options.wait_seconds); !status) return status;
    put_in_front(*folder);
    if (options.verbose && environment("FLYT_LOG").empty()) ::setenv("FLYT_LOG", "info", 1);
    return {};
  }
  if (!options.token_file.empty()) {
    std::error_code error;
    const auto path = std::filesystem::absolute(options.token_file, error);
    // The program may go elsewhere before it reads the file.
    ::setenv("FLYT_TOKEN_FILE", error ? options.token_file.c_str() : path.c_str(), 1);
    ::unsetenv("FLYT_TOKEN");
  }
  const auto info = control::greet(server);
  if (!info) return info.error();
  put_in_front(*folder);
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
