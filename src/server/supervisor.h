// Supervisor: the server's parent process. It accepts clients and gives each a process of its own;
// it never touches CUDA, so that no driver is ever forked.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"
#include "server/lobby.h"
#include "server/session_process.h"
#include "transport/transport.h"

namespace flyt::server {

struct SupervisorOptions {
  std::vector<std::string> urls;
  SessionOptions session;
  unsigned warm = 0;  // Processes kept ready, with the driver started.
  unsigned sessions_max = 256;
  unsigned drain_seconds = 10;  // How long sessions may go on after SIGTERM.
  int ready_fd = -1;            // Gets "ready\n" once clients can connect; -1: none.
};

// Belongs to the process's only thread.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Serves until SIGTERM or SIGINT: no new clients from then on, sessions go on for drain_seconds
  // (SIGINT or a second signal: not at all). An error only if the server cannot start.
  Status run();

 private:
  enum class ChildKind : std::uint8_t { kSession, kWarm };
  struct Child {
    ChildKind kind = ChildKind::kSession;
    Fd channel;  // To a warm child that waits for its client.
  };

  Status check_driver();
  Status start_listening();
  Status wait_for_events();
  void accept_from(transport::Listener& listener);
  void let_in();
  // `share`: the session may go on in shared memory.
  void give_to_child(std::unique_ptr<transport::Connection> connection, bool share);
  bool give_to_warm_child(int socket, bool share);
  void fork_session(std::unique_ptr<transport::Connection> connection, bool share);
  void keep_warm();
  void fork_warm();
  [[noreturn]] void run_warm_child(int channel);
  void become_child();
  void reap();
  void take_signals();
  void end_children(int signal);
  bool finished() const;

  SupervisorOptions options_;
  Log log_;
  std::vector<std::unique_ptr<transport::Listener>> listeners_;
  Lobby lobby_;
  std::map<pid_t, Child> children_;
  Fd signals_;
  bool stopping_ = false;
  Instant stop_at_{};
  unsigned warm_failures_ = 0;
};

}  // namespace flyt::server
