// DeskServer: the socket at which programs ask for the virtual GPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/result.h"
#include "base/shortage.h"
#include "control/client/config.h"
#include "control/client/known_programs.h"
#include "control/client/office.h"
#include "transport/transport.h"

namespace flyt::vm {

// run() belongs to one thread; stop() is safe from any.
class DeskServer {
 public:
  // Listens, and takes over programs of an earlier client manager that still run.
  static Result<std::unique_ptr<DeskServer>> open(const Config& config, Office& office,
                                                  const Log& log);
  void run();
  void stop();

 private:
  struct Peer {
    std::unique_ptr<transport::Connection> connection;
    std::vector<std::byte> in;
    std::vector<std::byte> out;
    Instant ask_by;  // When it must have asked.
    bool asked = false;
    bool granted = false;
    bool closing = false;  // As soon as all is sent.
    KnownProgram program;
  };
  using Peers = std::map<ProgramId, Peer>;

  DeskServer(const Config& config, Office& office, const Log& log)
      : config_(config), office_(office), own_log_(log) {}
  void take_over();
  void wait(Instant now);
  void accept_one();
  void make_room(std::uint32_t user);
  bool may_ask(std::uint32_t user) const;
  // False: the peer is to go.
  bool read(ProgramId id, Peer& peer);
  void answer(ProgramId id, Peer& peer, const wire::DeskAsk& ask);
  bool flush(Peer& peer);
  void deliver();
  void drop(Peers::iterator peer, std::string_view why);
  void look_after(Instant now);
  void remember();

  const Config config_;
  Office& office_;
  const Log own_log_;
  // Programs come and go as often as they like.
  LogLimits lines_;
  const Log log_{own_log_.limited(lines_)};
  std::vector<std::uint32_t> users_;
  std::unique_ptr<transport::Listener> listener_;
  ProgramId last_id_ = 0;
  Peers peers_;
  std::map<ProgramId, KnownProgram> adopted_;
  bool to_remember_ = false;
  Shortage no_connections_;  // While the listener is not polled.
  std::atomic<bool> stopped_{false};
};

}  // namespace flyt::vm
