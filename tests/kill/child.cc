#include "tests/kill/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/server_process.h"

extern char** environ;

namespace flyt::kill {

Child::Child(const std::string& job, std::uint64_t seed, const std::string& url) {
  int to[2];
  int from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) return;
  to_ = Fd(to[1]);
  from_ = Fd(from[0]);
  const Fd in(to[0]);
  const Fd out(from[1]);
  std::string name = "flyt_kill";
  std::string client = "--client";
  std::string work = job;
  std::string number = std::to_string(seed);
  char* const arguments[] = {name.data(), client.data(), work.data(), number.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.get(), 1);
  ::setenv("FLYT_SERVER", url.c_str(), 1);
  if (::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ) != 0) {
    pid_ = -1;
  }
  ::posix_spawn_file_actions_destroy(&actions);
}

Child::~Child() { kill(); }

bool Child::read_some(double seconds) {
  pollfd readable{from_.get(), POLLIN, 0};
  if (::poll(&readable, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
  char bytes[4096];
  const ssize_t count = ::read(from_.get(), bytes, sizeof(bytes));
  if (count <= 0) return false;
  output_.append(bytes, static_cast<std::size_t>(count));
  return true;
}

bool Child::wrote(const std::string& text, double seconds) {
  while (output_.find(text) == std::string::npos) {
    if (!read_some(seconds)) return false;
  }
  return true;
}

bool Child::wrote_bytes(std::size_t count, double seconds) {
  while (output_.size() < count) {
    if (!read_some(seconds)) return false;
  }
  return true;
}

std::string Child::ask(const std::string& line, double seconds) {
  const std::string text = line + "\n";
  output_.clear();
  if (::write(to_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return {};
  return wrote("\n", seconds) ? output_.substr(0, output_.find('\n')) : std::string();
}

void Child::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int Child::wait(double seconds) {
  int status = 0;
  const auto ended = [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; };
  if (pid_ <= 0 || !tests::eventually(seconds, ended)) return -1000;
  pid_ = -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace flyt::kill
