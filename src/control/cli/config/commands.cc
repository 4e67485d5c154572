#include "control/cli/config/commands.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "control/cli/config/ancestor.h"
#include "control/cli/table.h"
#include "control/client/config.h"
#include "control/cluster/config.h"
#include "control/node/config.h"

namespace flyt::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void tell(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

// As the file is called; a cluster's if it is called otherwise.
std::string program_of(const ConfigOptions& options, const std::string& file) {
  if (!options.program.empty()) return options.program;
  const std::string name = fs::path(file).stem().string();
  return name == "node" || name == "client" ? name : "cluster";
}

template <class Config>
Status finished(Result<Config> config, const std::string& file) {
  if (!config) return config.error();
  Status status;
  if constexpr (std::is_same_v<Config, cluster::Config>) {
    status = cluster::finish(*config, control::system_folders("cluster"));
  }
  if constexpr (std::is_same_v<Config, node::Config>) {
    status = node::finish(*config, "/usr/bin", control::system_folders("node"));
  }
  if (status) return {};
  return Error{status.error().code, file + ": " + status.error().message};
}

Status check_file(const std::string& program, const std::string& file) {
  if (program == "node") return finished(node::read_config(file), file);
  if (program == "client") return finished(vm::read_config(file), file);
  return finished(cluster::read_config(file), file);
}

// Another manager's file is no cluster manager's with a mistake in it.
Error with_hint(Error error, const ConfigOptions& options, const std::string& file) {
  const bool guessed = options.program.empty() && fs::path(file).stem() != "cluster";
  if (guessed && program_of(options, file) == "cluster") {
    error.message += "; it was read as a cluster manager's: --of node or --of client if it is not";
  }
  return error;
}

Status write_new(const std::string& path, const std::string& text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.get() < 0 && errno == EEXIST) {
    return Error{ErrorCode::kDenied, path + " is there already; name another folder with --out"};
  }
  if (file.get() < 0) return system_error("cannot make " + path, errno);
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t written = ::write(file.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Error error = system_error("cannot write " + path, errno);
      ::unlink(path.c_str());
      return error;
    }
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

void tell_import(const ConfigOptions& options, const std::string& file, const std::string& path,
                 const Imported& made) {
  if (options.json) {
    Json left = Json::array();
    for (const NotCarried& one : made.left) {
      left.push_back({{"line", one.line}, {"key", one.key}, {"why", one.why}});
    }
    tell({{"file", file}, {"of", made.program}, {"written", path}, {"not_carried", left}});
    return;
  }
  std::cout << clean(file) << ": a " << made.program << "'s; written to " << clean(path) << "\n";
  for (const NotCarried& one : made.left) {
    std::cout << clean(file) << ":" << one.line << ": not carried over: " << clean(one.key) << ": "
              << one.why << "\n";
  }
}

}  // namespace

Status config_check(const ConfigOptions& options) {
  for (const std::string& file : options.files) {
    const std::string program = program_of(options, file);
    Status status = check_file(program, file);
    if (!status) status = with_hint(status.error(), options, file);
    if (options.json) {
      tell({{"file", file},
            {"of", program},
            {"right", status.ok()},
            {"why", status ? "" : status.error().message}});
    }
    if (!status) return status;
    if (!options.json) std::cout << clean(file) << ": right, for a " << program << "\n";
  }
  return {};
}

Status config_import(const ConfigOptions& options) {
  const ImportPlace place{.port = options.port,
                          .host = options.host.empty() ? machine_name() : options.host,
                          .folder = "/etc/flyt"};
  // Nothing is written if anything is wrong.
  std::vector<Imported> all;
  std::map<std::string, std::string> file_of;
  for (const std::string& file : options.files) {
    const auto text = control::read_file(file);
    if (!text) return text.error();
    auto made = import_ancestor(*text, file, place);
    if (!made) return std::move(made).error();
    const auto [other, fresh] = file_of.emplace(made->program, file);
    if (!fresh) {
      return Error{ErrorCode::kInvalid, other->second + " and " + file + " are both a " +
                                            made->program +
                                            "'s: import them into folders of their own"};
    }
    all.push_back(std::move(*made));
  }
  std::error_code error;
  fs::create_directories(options.out, error);
  for (const Imported& made : all) {
    const std::string path = options.out + "/" + made.program + ".toml";
    if (Status status = write_new(path, made.toml); !status) return status;
    tell_import(options, file_of[made.program], path, made);
  }
  return {};
}

}  // namespace flyt::cli
