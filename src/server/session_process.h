// The process of one session: a child of the server that serves one client and then ends.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/log_limit.h"
#include "base/result.h"
#include "base/room.h"
#include "driver/load.h"
#include "server/code/code_store.h"
#include "server/faults/fault_board.h"
#include "server/lease/lease.h"
#include "server/lease/usage_board.h"
#include "server/nvml/fleet.h"
#include "server/parent/admission.h"
#include "transport/transport.h"
#include "wire/hello.h"

namespace flyt::server {

struct HostBuffers;  // server/transfers/pinned_memory.h

struct SessionOptions {
  std::string driver;     // A path, "auto" or "soft".
  std::string soft_path;  // Where the software GPU is.
  LogLevel log_level = LogLevel::kInfo;
  std::shared_ptr<const nvml::Fleet> fleet;  // What the driver told at the server's start.
  std::shared_ptr<UsageBoard> board;         // May be null: then nobody is told.
  std::size_t slot = UsageBoard::kNoSlot;    // This session's place on it.
  LeaseOptions lease;
  std::shared_ptr<Admission> admission;  // Null: whoever connects may have a session.
  CodeStoreOptions code_store;
  bool movable = false;          // The lease's multiprocessors may change.
  int exchange_door = -1;        // Of the server's exchange; -1: there is none.
  int keeper_door = -1;          // Of the server's keeper; -1: sessions end with their processes.
  std::uint32_t returns_ms = 0;  // How long clients wait for another server in this one's place.
  int lane_door = -1;  // Where the session's lanes come from, which it owns; -1: it has none.
  wire::SessionToken token{};         // By which they find it; all zero: it has none.
  std::string fault_board;            // Of the GPU's processes; empty: they share no faults.
  std::string gpu_room;               // The same: who of them is there; empty: nobody counts.
  std::uint32_t gpu_sessions = 46;    // How many they may be; with gpu_room.
  std::uint32_t recover_seconds = 0;  // How long the room of a killed one is kept.
  // Of lines that clients may cause, in whatever process of the server.
  std::shared_ptr<LogLimits> lines = LogLimits::shared();
};

// A driver that has been loaded and initialised in this process.
struct ReadyDriver {
  driver::Driver driver;
  std::string kind;         // "soft", "nvidia" or the path: for the hello and the logs.
  std::string device_name;  // Of the first device.
  int devices = 0;
  std::unique_ptr<FaultBoard> faults;  // Null: a fault is this process's alone.
  bool warm = false;                   // It has a context already.
  std::unique_ptr<Room> room;          // This process's place there; null: nobody counts.
};

// Of what happens to sessions; who begins many of them does not fill it.
Log log_of_session(const SessionOptions& options);

// Loads and initialises what `options` ask for: with "auto" NVIDIA's driver if it starts here and
// has a device, else the software GPU.
Result<ReadyDriver> prepare_driver(const SessionOptions& options);

// Brings up what is most of a session's start, ahead of its client: the first device's primary
// context, and host memory registered in it. kLimit: the GPU takes no further context now.
Status warm_up(ReadyDriver& driver, HostBuffers& buffers);
// The context alone.
Status make_context(ReadyDriver& driver);

// Reads a client's hello, before anything is done for it; as a rule all of it has come (Lobby).
// Waits ten seconds for the rest at the most. After an error the client has been told, and so has
// the log.
Result<wire::ClientHello> hear_client(transport::Connection& connection,
                                      const SessionOptions& options);

// Serves one client to its end and says so in the log. The process has nothing left to do after it.
// `share`: the session may go on in shared memory, if it began on a Unix socket.
void serve_session(std::unique_ptr<transport::Connection> connection,
                   const wire::ClientHello& hello, bool share, const ReadyDriver& driver,
                   HostBuffers& buffers, const SessionOptions& options);

}  // namespace flyt::server
