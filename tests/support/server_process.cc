#include "tests/support/server_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

extern char** environ;

namespace flyt::tests {
namespace {

constexpr double kStartSeconds = 120;

// The word behind "url=" in a log line that has "listening".
std::string listening_url(const std::string& log) {
  const std::size_t line = log.find("listening");
  if (line == std::string::npos) return {};
  std::size_t begin = log.find("url=", line);
  const std::size_t end_of_line = log.find('\n', line);
  if (begin == std::string::npos || end_of_line == std::string::npos) return {};
  if (begin > end_of_line) return {};
  begin += 4;
  if (log[begin] == '"') ++begin;
  return log.substr(begin, log.find_first_of("\" \n", begin) - begin);
}

struct ProcessState {
  char state = '?';
  pid_t parent = -1;
};

ProcessState state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos || text.size() < close + 4) return {};
  return {text[close + 2], static_cast<pid_t>(std::atoi(text.c_str() + close + 4))};
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  DIR* folder = ::opendir("/proc");
  while (const dirent* entry = folder ? ::readdir(folder) : nullptr) {
    const pid_t pid = static_cast<pid_t>(std::atoi(entry->d_name));
    if (pid > 0) pids.push_back(pid);
  }
  if (folder != nullptr) ::closedir(folder);
  return pids;
}

std::string own_folder() {
  char path[4096] = {};
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  const std::string text(path, size > 0 ? static_cast<std::size_t>(size) : 0);
  return text.substr(0, text.rfind('/'));
}

std::string name_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

bool eventually(double seconds, const std::function<bool()>& done) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (Clock::now() > deadline) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

ServerProcess::~ServerProcess() {
  kill();
  if (reader_.joinable()) reader_.join();
  if (!folder_.empty()) {
    ::unlink((folder_ + "/flyt.sock").c_str());
    ::rmdir(folder_.c_str());
  }
}

Status ServerProcess::start(const ServerOptions& options) {
  std::string listen = options.listen;
  if (listen.empty() || listen == "shm" || listen == "unix") {
    char pattern[] = "/tmp/flyt-test-XXXXXX";
    if (::mkdtemp(pattern) == nullptr) return system_error("mkdtemp", errno);
    folder_ = pattern;
    const std::string path = folder_ + "/flyt.sock";
    listen = listen == "unix" ? "unix://" + path + "?shm=off" : "shm://" + path;
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  log_pipe_ = Fd(ends[0]);
  const Fd to(ends[1]);
  std::string for_clients;
  if (const std::size_t at = listen.find('?'); listen.starts_with("tcp:") && at != listen.npos) {
    for_clients = listen.substr(at);
    listen.resize(at);
  }
  std::vector<std::string> words = {options.program, "--listen", listen, "--driver",
                                    options.driver};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  // Nothing is left behind, and no test depends on what another one has sent.
  if (std::find(words.begin(), words.end(), "--module-cache") == words.end()) {
    words.insert(words.end(), {"--module-cache", "off"});
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to.get(), 2);
  const int failed =
      ::posix_spawn(&pid_, options.program.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    pid_ = -1;
    return system_error("start " + options.program, failed);
  }
  reader_ = std::thread([this] { read_log(); });
  const bool ready = eventually(kStartSeconds, [this] {
    url_ = listening_url(log());
    return !url_.empty() || !running();
  });
  if (!ready || url_.empty()) {
    return Error{ErrorCode::kTimeout, "flyt-server is not listening:\n" + log()};
  }
  url_ += for_clients;
  return {};
}

void ServerProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int ServerProcess::stop(int signal, double seconds) {
  if (pid_ <= 0) return -1000;
  ::kill(pid_, signal);
  int status = 0;
  const bool ended = eventually(seconds, [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) return -1000;
  pid_ = -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

bool ServerProcess::running() const {
  const char state = pid_ > 0 ? state_of(pid_).state : '?';
  return state != '?' && state != 'Z' && state != 'X';
}

std::string ServerProcess::log() const {
  const Lock lock(mutex_);
  return log_;
}

bool ServerProcess::logged(const std::string& text, double seconds) const {
  return eventually(seconds, [&] { return log().find(text) != std::string::npos; });
}

std::vector<pid_t> ServerProcess::children() const {
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    const std::string name = name_of(pid);
    const bool helper = name == "flyt-exchange" || name == "flyt-keeper";
    if (state_of(pid).parent == pid_ && !helper) found.push_back(pid);
  }
  return found;
}

pid_t ServerProcess::helper(const std::string& name) const {
  for (const pid_t pid : all_processes()) {
    const auto state = state_of(pid);
    if (state.parent == pid_ && state.state != 'Z' && name_of(pid) == name) return pid;
  }
  return 0;
}

bool ServerProcess::rests() const { return state_of(pid_).state == 'S'; }

std::vector<pid_t> ServerProcess::zombies() const {
  std::vector<pid_t> found;
  for (const pid_t pid : children()) {
    if (state_of(pid).state == 'Z') found.push_back(pid);
  }
  return found;
}

std::size_t ServerProcess::open_descriptors() const {
  std::size_t count = 0;
  DIR* folder = ::opendir(("/proc/" + std::to_string(pid_) + "/fd").c_str());
  while (folder != nullptr && ::readdir(folder) != nullptr) ++count;
  if (folder != nullptr) ::closedir(folder);
  return count;
}

void ServerProcess::read_log() {
  char bytes[4096];
  while (true) {
    const ssize_t count = ::read(log_pipe_.get(), bytes, sizeof(bytes));
    if (count <= 0) return;
    const Lock lock(mutex_);
    log_.append(bytes, static_cast<std::size_t>(count));
  }
}

std::string server_driver() {
  const char* given = ::getenv("FLYT_TEST_DRIVER");
  return given != nullptr ? given : "soft";
}

bool over_soft_gpu() { return server_driver() == "soft"; }

std::string server_program() {
  if (const char* given = ::getenv("FLYT_TEST_SERVER")) return given;
  return own_folder() + "/../bin/flyt-server";
}

std::string built_library(const std::string& name) { return own_folder() + "/../lib/" + name; }

}  // namespace flyt::tests
