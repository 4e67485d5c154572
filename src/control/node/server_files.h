// ServerFiles: what a lease's server is started with: its command, and the files it needs.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "control/node/config.h"
#include "control/node/lease.h"
#include "control/node/process.h"

namespace flyt::node {

// Names of files of one lease; "probe-0" and the like are no leases, but have them too.
class ServerFiles {
 public:
  ServerFiles(const Config& config, std::string lease);

  std::string socket() const { return run_ + "/gpu.sock"; }
  std::string control_url() const { return "unix://" + run_ + "/control.sock"; }
  std::string keeper() const { return run_ + "/keeper.sock"; }
  std::string key() const { return state_ + "/token.key"; }
  std::string token_book() const { return run_ + "/tokens"; }
  std::string modules() const { return state_ + "/modules"; }
  std::string log() const { return state_ + "/server.log"; }

  // Makes the folders, and the key if there is none yet: what admits clients stays valid when a
  // server is started again.
  Status prepare() const;
  // Removes all of it.
  void remove() const;

 private:
  std::string lease_;
  std::string run_;
  std::string state_;
};

// The folders in which all of them are.
std::string run_folder_of_leases(const Config& config);
std::string state_folder_of_leases(const Config& config);

// Makes a folder, and those above it, with mode 0700; refuses one of another user.
Status make_private_folder(const std::string& path);
// The same with 0711: others reach what they know the name of, as far as its own mode lets them.
Status make_reachable_folder(const std::string& path);

ProcessCommand server_command(const Config& config, const Lease& lease, const Gpu& gpu);
// A server without limits, to ask for facts about a GPU.
ProcessCommand probe_command(const Config& config, std::uint32_t gpu, const std::string& gpu_uuid,
                             Mode mode);
// Who has a session on one GPU, base/room.h; gone with the machine's next start.
std::string gpu_room(const Config& config, std::uint32_t gpu);

// Where MPS of one GPU is reached.
std::string mps_pipe_folder(const Config& config, std::uint32_t gpu);

// The lease of a server that this node, and no other, started; empty for any other process.
std::string lease_of(const Config& config, const ProcessFacts& facts);

// The process that holds what a server's sessions have, and outlives the server.
bool is_keeper(const ProcessFacts& facts);

// Where clients connect.
std::vector<std::string> urls_of(const Config& config, const Lease& lease);

}  // namespace flyt::node
