// ServerProcess: a private flyt-server for one test program, and what it logs.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "base/fd.h"
#include "base/result.h"

namespace flyt::tests {

// What private servers run over: FLYT_TEST_DRIVER, or "soft".
std::string server_driver();
// Whether that is the software GPU, which alone can be set up to behave as other machines' do.
bool over_soft_gpu();

struct ServerOptions {
  std::string program;                   // Path of flyt-server.
  std::string driver = server_driver();  // --driver
  // --listen; "shm" (or empty) and "unix" stand for a fresh path in a private folder, the latter
  // for sessions that stay on their sockets. Options behind a tcp URL are for clients: url() has
  // them, the server does not get them.
  std::string listen;
  std::vector<std::string> arguments;
};

// Calls `done` until it says true; false when `seconds` have passed.
bool eventually(double seconds, const std::function<bool()>& done);

// Killed and reaped at destruction. Safe from any thread once started.
class ServerProcess {
 public:
  ServerProcess() = default;
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Returns when the server accepts connections.
  Status start(const ServerOptions& options);
  // SIGKILL to the parent process; sessions' processes follow by themselves.
  void kill();
  // Signals, then waits: the exit status, or minus the signal; -1000 when it does not end.
  int stop(int signal, double seconds);

  pid_t pid() const { return pid_; }
  bool running() const;
  const std::string& url() const { return url_; }

  // What it has logged so far.
  std::string log() const EXCLUDES(mutex_);
  bool logged(const std::string& text, double seconds) const;
  // Processes whose parent is the server, zombies included.
  std::vector<pid_t> children() const;
  std::vector<pid_t> zombies() const;
  // The one that helps sessions by that name, "flyt-keeper" for example; 0: there is none.
  pid_t helper(const std::string& name) const;
  // The server's parent process waits for something to do: what it has begun it has done.
  bool rests() const;
  // Open descriptors of the server's parent process.
  std::size_t open_descriptors() const;

 private:
  void read_log();

  pid_t pid_ = -1;
  std::string url_;
  std::string folder_;
  Fd log_pipe_;
  std::thread reader_;
  mutable Mutex mutex_;
  std::string log_ GUARDED_BY(mutex_);
};

// The flyt-server that was built beside the running test program (../bin, then the same folder).
std::string server_program();
// The same for a library: ../lib/NAME.
std::string built_library(const std::string& name);

}  // namespace flyt::tests
