#include "control/cli/trace.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/fd.h"
#include "control/cli/chrome_trace.h"
#include "control/cli/trace_report.h"

namespace flyt::cli {
namespace {

namespace fs = std::filesystem;

// A folder of our own, gone with everything in it at the end.
class Folder {
 public:
  Folder() {
    const char* base = ::getenv("TMPDIR");
    std::string name = std::string(base == nullptr || *base == '\0' ? "/tmp" : base);
    name += "/flyt-trace-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The signals that a user or a supervisor sends to us and means for the program.
constexpr int kForwarded[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  for (const int signal : kForwarded) ::sigaddset(&set, signal);
  return set;
}

// Waits for the child and meanwhile hands on what it should get: what a terminal sends it gets by
// itself.
int wait_for(pid_t child, const sigset_t& signals) {
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) != child) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals, &info);
    if (signal <= 0 || signal == SIGCHLD || info.si_code == SI_KERNEL) continue;
    ::kill(child, signal);
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// The child tells through a pipe that closes by itself when it has become the program.
[[noreturn]] void become(const std::vector<std::string>& command, int report) {
  const Error error = execute(command);
  [[maybe_unused]] const ssize_t told = ::write(report, error.message.data(), error.message.size());
  ::_exit(kExitNotStarted);
}

std::string read_all(int fd) {
  std::string text;
  char part[512];
  while (true) {
    const ssize_t got = ::read(fd, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

Result<int> run_and_wait(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  const Fd reads(ends[0]);
  Fd writes(ends[1]);
  const sigset_t signals = watched_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = ::fork();
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    become(command, writes.get());
  }
  writes.close();
  if (child < 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return system_error("fork", errno);
  }
  const std::string failure = read_all(reads.get());
  const int status = wait_for(child, signals);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (!failure.empty()) return Error{ErrorCode::kSystem, failure};
  return status;
}

// Those in the folder, by the time they began. One that is not whole yet belongs to a process that
// has only just begun to make it.
std::vector<trace::Process> recordings_in(const std::string& folder) {
  std::vector<trace::Process> processes;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    auto process = trace::read_recording(entry.path().string());
    if (process) processes.push_back(std::move(*process));
  }
  std::sort(processes.begin(), processes.end(),
            [](const auto& a, const auto& b) { return a.started_ns < b.started_ns; });
  return processes;
}

// Where a report goes.
struct Place {
  std::string path;     // Of a link: where it leads.
  bool is_file = true;  // Else a pipe, a terminal or the like, which is written to as it is.
  std::ostream* stream = nullptr;  // Ours, if it is there that this leads.
};

Error cannot_write(const std::string& path, int error) {
  return system_error("cannot write " + path, error);
}

Result<Place> place_of(const std::string& path) {
  Place place{.path = path};
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) {
    return errno == ENOENT ? Result<Place>(place) : cannot_write(path, errno);
  }
  if (S_ISDIR(there.st_mode)) return cannot_write(path, EISDIR);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(fd, &own) == 0 && own.st_dev == there.st_dev && own.st_ino == there.st_ino) {
      place.stream = fd == STDOUT_FILENO ? &std::cout : &std::cerr;
      return place;
    }
  }
  place.is_file = S_ISREG(there.st_mode);
  if (!place.is_file && ::access(path.c_str(), W_OK) != 0) return cannot_write(path, errno);
  if (place.is_file) {
    std::error_code error;
    place.path = fs::canonical(path, error).string();
    if (error) return cannot_write(path, error.value());
  }
  return place;
}

std::string fresh_name(const Place& place) {
  return place.path + ".new-" + std::to_string(::getpid());
}

// A whole new file or the old one, never half of it.
template <class Write>
Status write_file(const std::string& path, Write write) {
  const auto place = place_of(path);
  if (!place) return place.error();
  if (place->stream != nullptr) {
    write(*place->stream);
    return place->stream->flush() ? Status() : cannot_write(path, errno);
  }
  const std::string fresh = place->is_file ? fresh_name(*place) : path;
  std::ofstream file(fresh, std::ios::binary);
  if (file) write(file);
  file.close();
  if (file && !place->is_file) return {};
  if (file && std::rename(fresh.c_str(), place->path.c_str()) == 0) return {};
  const int failure = errno;
  if (place->is_file) ::unlink(fresh.c_str());
  return cannot_write(path, failure);
}

// Before the program has run in vain.
Status can_write(const std::string& path) {
  if (path.empty()) return {};
  const auto place = place_of(path);
  if (!place) return place.error();
  if (place->stream != nullptr || !place->is_file) return {};
  const std::string fresh = fresh_name(*place);
  const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() < 0) return cannot_write(path, errno);
  ::unlink(fresh.c_str());
  return {};
}

Status report(const TraceOptions& options, const std::vector<trace::Process>& processes) {
  const std::string text = options.json ? trace_json(processes) : trace_table(processes);
  Status written;
  if (options.output.empty()) {
    std::ostream& out = options.recordings.empty() ? std::cerr : std::cout;
    if (!(out << text << std::flush)) written = cannot_write("the report", errno);
  } else {
    written = write_file(options.output, [&](std::ostream& out) { out << text; });
  }
  if (!options.chrome.empty()) {
    Status chrome =
        write_file(options.chrome, [&](std::ostream& out) { write_chrome_trace(processes, out); });
    if (written) written = std::move(chrome);
  }
  return written;
}

}  // namespace

Result<int> trace(const TraceOptions& options) {
  std::vector<trace::Process> processes;
  if (!options.recordings.empty()) {
    for (const std::string& path : options.recordings) {
      auto process = trace::read_recording(path);
      if (!process) return std::move(process).error();
      processes.push_back(std::move(*process));
    }
    Status written = report(options, processes);
    return written ? Result<int>(EXIT_SUCCESS) : Result<int>(std::move(written).error());
  }
  for (const std::string& path : {options.output, options.chrome}) {
    if (Status able = can_write(path); !able) return std::move(able).error();
  }
  const Folder folder;
  if (folder.path().empty()) return system_error("cannot make a folder for recordings", errno);
  Status prepared = prepare(options.run);
  if (!prepared) return std::move(prepared).error();
  ::setenv("FLYT_TRACE", (folder.path() + "/recording").c_str(), 1);
  const std::uint64_t events = options.chrome.empty() ? 0 : options.events_max;
  ::setenv("FLYT_TRACE_EVENTS", std::to_string(events).c_str(), 1);
  Result<int> status = run_and_wait(options.run.command);
  if (!status) return status;
  Status written = report(options, recordings_in(folder.path()));
  // The program's own status is worth more than that of its report.
  if (!written) std::cerr << "flyt: " << written.error().message << "\n";
  return status;
}

}  // namespace flyt::cli
