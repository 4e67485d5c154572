#include "control/node/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

// lint: allow(globals): what the C library gives to programs.
extern char** environ;

namespace flyt::node {
namespace {

namespace fs = std::filesystem;

constexpr int kReadyFd = 3;
constexpr std::uintmax_t kLogBytesMax = 8 << 20;

// Arguments or environment as execve(2) wants them.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  char* const* get() { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

std::vector<std::string> environment(const ProcessCommand& command) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool changed = std::any_of(
        command.changes.begin(), command.changes.end(),
        [&](const auto& change) { return text.substr(0, text.find('=')) == change.first; });
    if (!changed) out.emplace_back(text);
  }
  for (const auto& [name, value] : command.changes) {
    if (!value.empty()) out.push_back(name + "=" + value);
  }
  return out;
}

// An old log makes room before a new process writes on.
void turn_log(const std::string& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kLogBytesMax && !error) fs::rename(path, path + ".1", error);
}

class SpawnSetup {
 public:
  SpawnSetup() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    ::sigemptyset(&none);
    sigset_t all;
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_,
                               POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  void files(const std::string& log, int ready) {
    ::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions_, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                       0600);
    ::posix_spawn_file_actions_adddup2(&actions_, 1, 2);
    if (ready >= 0) ::posix_spawn_file_actions_adddup2(&actions_, ready, kReadyFd);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, ready >= 0 ? kReadyFd + 1 : kReadyFd);
  }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

Fd open_handle(std::int32_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

int milliseconds_until(Instant deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - system_clock().now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count() + 1, 0, 60'000));
}

bool poll_one(int fd, Instant deadline) {
  while (true) {
    pollfd entry{fd, POLLIN, 0};
    const int found = ::poll(&entry, 1, milliseconds_until(deadline));
    if (found > 0) return true;
    if (found == 0 && system_clock().now() >= deadline) return false;
    if (found < 0 && errno != EINTR) return false;
  }
}

// Anything but the word, the end included, means that it will never be ready.
Status wait_ready(int fd, Instant deadline) {
  std::string text;
  while (!text.ends_with('\n')) {
    if (!poll_one(fd, deadline)) return Error{ErrorCode::kTimeout, "it was not ready in time"};
    char part[64];
    const ssize_t got = ::read(fd, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{ErrorCode::kLost, "it ended at its start"};
    text.append(part, static_cast<std::size_t>(got));
  }
  return {};
}

template <class T>
bool number_of(std::string_view text, T& out) {
  const char* end = text.data() + text.size();
  return std::from_chars(text.data(), end, out).ptr == end;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::optional<ProcessFacts> facts_of(std::int32_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::string stat = contents(folder + "/stat");
  // The name, in parentheses, may hold anything.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  const std::size_t name_begin = stat.find('(') + 1;
  ProcessFacts facts{.id = {.pid = pid}, .name = stat.substr(name_begin, name_end - name_begin)};
  std::string field;
  // proc(5) counts from 1; the state is the third, the group the fifth, the start the 22nd.
  for (int i = 3; i <= 22 && fields >> field; ++i) {
    if (i == 3 && (field == "Z" || field == "X")) return std::nullopt;
    if (i == 5 && !number_of(field, facts.group)) return std::nullopt;
    if (i == 22 && !number_of(field, facts.id.start)) return std::nullopt;
  }
  std::istringstream words(contents(folder + "/cmdline"));
  std::string word;
  while (std::getline(words, word, '\0')) facts.words.push_back(word);
  return facts;
}

std::vector<ProcessFacts> list_processes() {
  std::vector<ProcessFacts> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    std::int32_t pid = 0;
    const std::string name = entry.path().filename().string();
    if (!number_of(std::string_view(name), pid)) continue;
    struct stat owner {};
    if (::stat(entry.path().c_str(), &owner) != 0 || owner.st_uid != ::geteuid()) continue;
    if (auto facts = facts_of(pid)) found.push_back(std::move(*facts));
  }
  return found;
}

Result<Process> Process::start(const ProcessCommand& command, Instant deadline) {
  int ends[2] = {-1, -1};
  if (command.tells_ready && ::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  turn_log(command.log);
  SpawnSetup setup;
  setup.files(command.log, writing.get());
  Words words(command.words);
  Words variables(environment(command));
  pid_t pid = 0;
  const int failure = ::posix_spawnp(&pid, command.words.front().c_str(), setup.actions(),
                                     setup.attributes(), words.get(), variables.get());
  writing.close();
  if (failure != 0) return system_error("cannot start " + command.words.front(), failure);
  const auto facts = facts_of(pid);
  Process process({pid, facts ? facts->id.start : 0}, open_handle(pid), true);
  if (!process.handle_.valid()) {
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return system_error("pidfd_open", errno);
  }
  if (!command.tells_ready) return process;
  Status status = wait_ready(reading.get(), deadline);
  if (status) return process;
  process.end(SIGKILL, Duration(0));
  return status.error();
}

std::optional<Process> Process::adopt(ProcessId id) {
  if (id.pid <= 0) return std::nullopt;
  Fd handle = open_handle(id.pid);
  if (!handle.valid()) return std::nullopt;
  // The handle is of whoever has the number now; the start tells whether that is the one meant.
  const auto facts = facts_of(id.pid);
  if (!facts || facts->id != id) return std::nullopt;
  return Process(id, std::move(handle), false);
}

bool Process::ended() const { return poll_one(handle_.get(), Instant{0}); }

bool Process::wait_until(Instant deadline) const { return poll_one(handle_.get(), deadline); }

void Process::signal(int number) const {
  ::syscall(SYS_pidfd_send_signal, handle_.get(), number, nullptr, 0);
}

// Those it has left behind, too. Only while nobody else can have the number: an ended child keeps
// it until it is collected.
void Process::kill_group() const {
  if (child_ || !ended()) ::kill(-id_.pid, SIGKILL);
}

std::string Process::end(int first_signal, Duration grace) {
  if (!ended()) {
    signal(first_signal);
    static_cast<void>(wait_until(system_clock().now() + grace));
  }
  kill_group();
  static_cast<void>(wait_until(system_clock().now() + std::chrono::seconds(10)));
  return collect();
}

std::string Process::collect() {
  int status = 0;
  if (!child_ || ::waitpid(id_.pid, &status, WNOHANG) != id_.pid) return "it is gone";
  child_ = false;
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

bool has_variable(std::int32_t pid, const std::string& variable) {
  std::istringstream variables(contents("/proc/" + std::to_string(pid) + "/environ"));
  std::string one;
  while (std::getline(variables, one, '\0')) {
    if (one == variable) return true;
  }
  return false;
}

std::string program_of(std::int32_t pid) {
  std::error_code error;
  return fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).string();
}

std::string tail_of(const std::string& path, std::size_t bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto size = static_cast<std::size_t>(file.tellg());
  file.seekg(static_cast<std::streamoff>(size > bytes ? size - bytes : 0));
  std::string text(std::min(size, bytes), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  while (text.ends_with('\n')) text.pop_back();
  std::size_t line = text.rfind('\n');
  if (line != std::string::npos && line != 0) line = text.rfind('\n', line - 1);
  if (line != std::string::npos) text.erase(0, line + 1);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace flyt::node
