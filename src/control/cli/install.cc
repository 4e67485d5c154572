#include "control/cli/install.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <vector>

#include "base/fd.h"
#include "control/cli/journal.h"

namespace flyt::cli {
namespace {

constexpr char kConf[] = "/etc/ld.so.conf.d/00-flyt.conf";
constexpr char kCache[] = "/etc/ld.so.cache";
// Everything that an installation touches, folders before what is in them.
constexpr std::array kTouched = {"/etc",
                                 "/etc/ld.so.conf.d",
                                 kConf,
                                 kCache,
                                 "/var/cache",
                                 "/var/cache/ldconfig",
                                 "/var/cache/ldconfig/aux-cache"};

std::string ldconfig_of(const InstallOptions& options) {
  if (!options.ldconfig.empty()) return options.ldconfig;
  for (const char* path : {"/sbin/ldconfig", "/usr/sbin/ldconfig", "/bin/ldconfig"}) {
    if (::access(path, X_OK) == 0) return path;
  }
  return "ldconfig";
}

// What it prints is kept only where it is wanted.
Result<std::string> run(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), 2);
  pid_t child = 0;
  const int failure =
      ::posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  writer.close();
  if (failure != 0) return system_error("cannot run " + words.front(), failure);
  std::string said;
  std::array<char, 4096> space;
  for (ssize_t got; (got = ::read(reader.get(), space.data(), space.size())) != 0;) {
    if (got < 0 && errno != EINTR) break;
    if (got > 0) said.append(space.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return said;
  return Error{ErrorCode::kSystem, words.front() + " failed: " + said};
}

// Only the cache: links of libraries are other packages' affair.
Status make_cache(const InstallOptions& options) {
  std::vector<std::string> words{ldconfig_of(options), "-X"};
  if (!options.root.empty()) words.insert(words.end(), {"-r", options.root});
  const auto said = run(std::move(words));
  return said ? Status() : Status(said.error());
}

// The first library of that name in the cache is the one that programs get.
Status check_cache(const InstallOptions& options) {
  const auto said = run({ldconfig_of(options), "-p", "-C", options.root + kCache});
  if (!said) return said.error();
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    std::istringstream lines(*said);
    std::string line;
    std::string found;
    while (found.empty() && std::getline(lines, line)) {
      const std::size_t arrow = line.find(" => ");
      const bool fits = line.find("x86-64") != std::string::npos &&
                        line.find(std::string("\t") + name + " ") == 0;
      if (fits && arrow != std::string::npos) found = line.substr(arrow + 4);
    }
    if (found == options.library + "/" + name) continue;
    return Error{ErrorCode::kInvalid,
                 "programs would load " + (found.empty() ? "no " + std::string(name) : found) +
                     "; does /etc/ld.so.conf include /etc/ld.so.conf.d/*.conf?"};
  }
  return {};
}

bool is_there(const std::string& path) {
  struct stat file {};
  return ::lstat(path.c_str(), &file) == 0;
}

Status check(const InstallOptions& options) {
  if (!options.library.starts_with('/') || options.library.find('\n') != std::string::npos) {
    return Error{ErrorCode::kInvalid, "the folder of the libraries is an absolute path"};
  }
  for (const char* name : {"/libcuda.so.1", "/libnvidia-ml.so.1"}) {
    const std::string path = options.root + options.library + name;
    if (!is_there(path)) {
      return Error{ErrorCode::kNotFound,
                   path +
                       " is not there; --library DIR names the folder of the libraries, as"
                       " programs there see it"};
    }
  }
  return {};
}

Status write_conf(const InstallOptions& options) {
  const std::string path = options.root + kConf;
  const std::string folder = path.substr(0, path.rfind('/'));
  for (const std::string& one : {options.root + "/etc", folder}) {
    if (::mkdir(one.c_str(), 0755) != 0 && errno != EEXIST) {
      return system_error("cannot make " + one, errno);
    }
  }
  return write_whole_file(path,
                          "# Made by `flyt client install`; `flyt client restore` takes it out.\n" +
                              options.library + "\n",
                          0644);
}

}  // namespace

Result<std::string> install_client(const InstallOptions& options) {
  if (Status status = check(options); !status) return status.error();
  Journal journal(options.root, {kTouched.begin(), kTouched.end()});
  if (journal.exists()) {
    return Error{ErrorCode::kDenied,
                 "it is installed already, or was begun; `flyt client restore` takes it out"};
  }
  if (is_there(options.root + kConf)) {
    return Error{ErrorCode::kInvalid, options.root + kConf + " is there, and is not ours"};
  }
  if (Status begun = journal.begin(); !begun) return begun.error();
  Status done = write_conf(options);
  if (done) done = make_cache(options);
  if (done) done = check_cache(options);
  if (done) done = journal.finish();
  if (!done) {
    const Error why = done.error();
    if (const auto undone = restore_client(options); !undone) {
      return Error{why.code, why.message + "; and taking it back: " + undone.error().message};
    }
    return why;
  }
  return "programs load " + options.library + "/libcuda.so.1 and libnvidia-ml.so.1 from now on\n";
}

Result<std::string> restore_client(const InstallOptions& options) {
  Journal journal(options.root, {kTouched.begin(), kTouched.end()});
  if (!journal.exists()) {
    return Error{ErrorCode::kNotFound, "it is not installed: there is no " + journal.path()};
  }
  auto changed = journal.undo();
  if (!changed) return std::move(changed).error();
  if (changed->empty()) {
    if (Status status = journal.forget(); !status) return status.error();
    return std::string("everything is as it was\n");
  }
  // Somebody else's libraries have come since: the cache is theirs, too.
  std::string kept;
  for (const std::string& path : *changed) {
    if (path == kConf) {
      return Error{ErrorCode::kDenied, options.root + kConf +
                                           " was changed since; it is left alone. Remove it, and"
                                           " restore again"};
    }
    kept += (kept.empty() ? "" : ", ") + path;
  }
  if (Status status = make_cache(options); !status) return status.error();
  if (Status status = journal.forget(); !status) return status.error();
  return "it is taken out; changed by others since, and made anew: " + kept + "\n";
}

}  // namespace flyt::cli
