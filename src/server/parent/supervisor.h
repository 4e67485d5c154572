// Supervisor: the server's parent process. It accepts clients and gives each a process of its own;
// it never touches CUDA, so that no driver is ever forked.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"
#include "base/shortage.h"
#include "server/parent/lobby.h"
#include "server/recovery/keeper.h"
#include "server/session_process.h"
#include "transport/transport.h"

namespace flyt::server {

struct SupervisorOptions {
  std::vector<std::string> urls;
  std::string control;  // Where this server is controlled, a Unix socket's URL; empty: nowhere.
  SessionOptions session;
  unsigned warm = 0;  // Processes kept ready, with the driver started.
  // A driver that starts in one process holds up what it does in others, so a session that has just
  // begun is left alone for a while before another process is made ready in place of its own.
  unsigned warm_pause_ms = 2000;
  unsigned sessions_max = 256;
  // Of those who only ask, `flyt run` before its program starts among them.
  unsigned monitors_max() const { return std::max(sessions_max, 16U); }
  unsigned recover_seconds = 0;  // How long the memory of a session that was killed is kept.
  std::string keeper;  // A socket's path where the next server finds what this one's sessions have
                       // left, if this process is killed; empty: it ends with it.
  unsigned handover_seconds = 10;  // How long SIGUSR1 waits for sessions.
  unsigned drain_seconds = 10;     // How long sessions may go on after SIGTERM.
  int ready_fd = -1;               // Gets "ready\n" once clients can connect; -1: none.
};

// Belongs to the process's only thread.
class Supervisor {
 public:
  // After that many warm processes in a row that died before they got a client, none are made.
  static constexpr unsigned kWarmFailuresMax = 3;

  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Serves until SIGTERM or SIGINT: no new clients from then on, sessions go on for drain_seconds
  // (SIGINT, or a second SIGTERM after a second: not at all); or until SIGUSR1 and no session has
  // anything under way: then they go on in the next server. An error only if the server cannot
  // start.
  Status run();

 private:
  enum class ChildKind : std::uint8_t { kSession, kWarm, kExchange, kKeeper, kControl };
  // What a process has got ready for its client.
  struct Warm {
    const ReadyDriver& driver;
    HostBuffers& buffers;
  };
  struct Child {
    ChildKind kind = ChildKind::kSession;
    Fd channel;  // To a warm child that waits for its client, and to a session that may have lanes.
    std::size_t slot = UsageBoard::kNoSlot;
    wire::SessionToken token{};  // All zero: it has no lanes.
    unsigned lanes = 0;          // Passed on to it.
    bool monitor = false;        // A session without a driver.
    std::uint64_t goes_on = 0;   // As of Lobby::Guest, and what follows.
    std::optional<wire::TokenNonce> charged{};
    std::uint32_t incident = 0;  // On the fault board when it was forked.
    bool ended = false;          // Warm, and killed by this process.
  };

  Status check_driver();
  Status start_listening();
  Status open_to_all(const transport::Url& url) const;
  Status start_admission();
  Status start_control();
  Status start_board();
  void start_exchange();
  // Another one, for sessions that begin from now on.
  void exchange_ended();
  Status start_keeper();
  // What a server before this one has left: its keeper, and the board with the memory of sessions
  // that may go on here. Nothing if there is no such server.
  Status find_keeper();
  // The same.
  void keeper_ended();
  // Whether a helper is to be started again that was started then.
  bool starts_again(Instant started) const;
  // Those that are ready for nobody: the server stops, or their session would have a helper that is
  // no more.
  void end_warm();
  void begin_handover();
  // Leaves what the sessions have to the next server, if they are ready, or gives up.
  void try_handover();
  bool take_sessions();
  // While the server is to be replaced: whether those who would begin a session wait.
  bool nobody_begins() const;
  // Ends without anybody's session.
  void leave();
  // Forks a process that is no session's, under a name of its own from the start; 0 in it.
  pid_t fork_named(const char* name);
  [[noreturn]] void run_keeper_child(Door door, const Fd& home);
  void free_held();
  // Whether the board has a row for a process that begins.
  bool has_room(bool monitor) const;
  // The session that has been waiting for its client for longest is given up, if none is already:
  // soon there is room.
  void make_room();
  Status wait_for_events();
  void accept_from(transport::Listener& listener);
  // The next who connects there; null if it is nobody, or there is no descriptor for him.
  std::unique_ptr<transport::Connection> accept_one(transport::Listener& listener);
  void accept_control();
  // What controlling children have asked for.
  void take_requests();
  void stop(Duration grace);
  void let_in();
  // At the end: whoever waits for a place is told so.
  void turn_all_away();
  // Whether there is a place for one more.
  bool has_place(const wire::ClientHello& hello) const;
  // Until a process has ended. Whether he is: nobody waits for long.
  bool hold(Lobby::Guest& guest, Duration at_most, std::string_view what);
  // Who goes on with a session whose process is still there, until that has ended: one for each
  // session.
  void hold_return(Lobby::Guest& guest);
  // kReturns: he may go on with his session, but not yet. kOut: he has been told why.
  enum class Verdict : std::uint8_t { kIn, kReturns, kOut };
  // Judges what the client shows, where something is to be shown; it and the log are told why not.
  // `waits`: there is no place yet.
  Verdict admit(Lobby::Guest& guest, const wire::ClientHello& hello, bool waits);
  Result<Verdict> judge_return(const Lobby::Guest& guest, const wire::SessionToken& token,
                               const std::string& peer);
  // Of somebody whose session does not begin.
  void give_back(const std::optional<wire::TokenNonce>& charged);
  void give_to_child(Lobby::Guest& guest, bool monitor);
  void give_to_session(transport::Connection& lane, const wire::SessionToken& token);
  // `share`: the session may go on in shared memory.
  bool give_to_warm_child(const Lobby::Guest& guest);
  void fork_session(Lobby::Guest& guest, bool monitor);
  // This process has no part in it any more; a process that serves the client may have.
  static void let_go(transport::Connection& connection);
  // How long to sleep at most.
  int timeout_ms() const;
  unsigned warm_children() const;
  void keep_warm();
  Status fork_warm();
  [[noreturn]] void run_warm_child(Fd channel);
  void warm_ended(int status);
  void become_child(std::size_t slot);
  [[noreturn]] void serve(std::unique_ptr<transport::Connection> connection, bool share,
                          const Warm* warm);
  void reap();
  void take_signals();
  // Their clients are told, so that they look for no other server.
  void end_sessions();
  void end_children(int signal);
  // At the end: how many lines there would have been.
  void tell_all_left_out() const;
  bool finished() const;
  std::size_t count_sessions() const;

  SupervisorOptions options_;
  Log log_;
  const LimitedLog refusals_{log_, options_.session.lines->refusals()};
  const Log sessions_{log_.limited(*options_.session.lines)};  // What happens to sessions.
  const pid_t own_;                                            // This process.
  std::vector<std::unique_ptr<transport::Listener>> listeners_;
  std::unique_ptr<transport::Listener> control_;
  Fd wake_;  // An eventfd: a controlling child has left a request on the board.
  Lobby lobby_;
  Lobby::Leaving leaving_;  // While they are let in.
  std::map<pid_t, Child> children_;
  Fd signals_;
  Fd exchange_door_;          // Inherited by all sessions' processes.
  Fd keeper_door_;            // The same.
  pid_t keeper_process_ = 0;  // 0: none, or no child of this one.
  Instant exchange_started_{};
  Instant keeper_started_{};
  std::optional<KeeperLine> keeper_line_;
  std::optional<Keeping> keeper_;       // To ask it.
  std::unique_ptr<FaultBoard> faults_;  // Null: the GPU's processes share no faults.
  std::unique_ptr<Room> room_;          // Null: nobody counts them.
  // Places on the board that the keeper holds, and those of processes that have not ended yet and
  // are no children of this one.
  struct Held {
    std::size_t slot = 0;
    pid_t process = 0;
  };
  std::vector<Held> held_;
  bool stopping_ = false;
  std::optional<Instant> terminated_;  // When SIGTERM came.
  std::optional<Instant> handover_until_;
  bool handed_over_ = false;
  Instant stop_at_{};
  Shortage no_connections_;  // While listeners are not polled.
  Shortage no_processes_;    // While no warm process can be made.
  unsigned warm_failures_ = 0;
  unsigned warm_refusals_ = 0;  // In a row, for want of room on the GPU.
  Instant warm_at_{};           // When what was taken of the warm processes is made up for.
};

}  // namespace flyt::server
