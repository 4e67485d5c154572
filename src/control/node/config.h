// Config: what a node manager's file says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/node/lease.h"
#include "control/settings/folders.h"
#include "control/settings/settings.h"

namespace flyt::node {

inline constexpr std::uint32_t kSoftGpusMax = 64;
inline constexpr std::uint32_t kSmPercentMax = 1000;
// MPS takes 48 contexts (seen on an H100, driver 580); a server that starts makes two for a moment,
// and processes that have ended may not quite be gone.
inline constexpr std::uint32_t kSharedGpuSessions = 46;
inline constexpr std::uint32_t kGpuSessionsMax = 1024;
// Socket files are named below the run folder, and such names have few bytes.
inline constexpr std::size_t kRunFolderBytesMax = 60;

struct Config {
  // [node]
  std::string name;          // The machine's, unless set.
  std::string state_folder;  // Database, keys, logs of servers.
  std::string run_folder;    // Sockets.
  std::string server;        // flyt-server; beside this program unless set.
  std::string log_level = "info";

  // [api]
  std::string api_unix;  // A path; node.sock in the run folder unless set.
  std::string api_tcp;   // HOST:PORT; empty: none.
  std::string cert;
  std::string key;
  std::string ca;
  std::string crl;  // Certificates that were revoked; empty: none is.

  // [metrics]
  std::string metrics;        // HOST:PORT of the loopback interface; empty: none.
  std::string metrics_token;  // A file with the token that admits to /metrics.

  // [gpus]
  Mode mode = Mode::kIsolated;
  std::uint32_t soft = 0;                    // Software GPUs; 0: those that NVML knows.
  std::uint32_t sm_percent = 100;            // Of multiprocessors, given out.
  std::uint64_t reserve_bytes = UINT64_MAX;  // UINT64_MAX: by the kind of GPU.
  std::uint64_t overhead_per_session_bytes = UINT64_MAX;  // The same.
  std::uint32_t gpu_sessions = UINT32_MAX;  // Of all leases of one; 0: any number; UINT32_MAX: by
                                            // the mode.
  std::string mps_control = "nvidia-cuda-mps-control";
  std::string nvml;  // A path; where drivers put it unless set.

  // [soft]
  std::uint32_t soft_sms = 16;
  std::uint64_t soft_memory_bytes = 2ull << 30;

  // [leases]
  std::uint32_t leases_max = 64;
  std::uint32_t sessions_max = 8;  // Of one lease.
  std::uint32_t warm = 1;
  std::uint32_t recover_seconds = 10;   // As of flyt-server --recover.
  std::uint32_t handover_seconds = 10;  // As of flyt-server --handover-seconds.
  std::string tcp_host;  // Where leases' servers listen, beside their Unix sockets; empty: not.
  std::uint16_t tcp_port_first = 0;
  std::uint16_t tcp_port_last = 0;
  std::string advertise;  // The host that clients are told; tcp_host unless set.
  std::uint32_t token_seconds = 300;
  std::uint32_t token_seconds_max = 86400;

  // [events]
  std::uint64_t events_max = 10000;

  // [cluster]
  std::string cluster;                      // unix:///PATH or HOST:PORT; empty: none.
  std::vector<std::string> cluster_others;  // More of them.
  std::vector<std::string> clusters;        // All of them: filled by finish().
  std::string cluster_advertise;            // Where the cluster manager reaches this node's API.
  std::string cluster_host;  // The machine, as VMs' records name it; its name unless set.
  std::string cluster_cert;  // Those of [api] unless set, as are the next two.
  std::string cluster_key;
  std::string cluster_ca;
  std::string cluster_crl;  // Cluster managers' that were revoked; empty: none is.

  std::uint64_t overhead_per_lease() const {
    return overhead_per_session_bytes * (sessions_max + warm);
  }
};

// Parses and checks. An error says FILE:LINE, the key and what it should be. Unknown keys are
// errors. What is not set has its default, finish() sets those that depend on others.
Result<Config> parse_config(std::string_view text, const std::string& file);
Result<Config> read_config(const std::string& path);
// That the files it names can be read; an error names all that cannot.
Status check_files(const Config& config);

// Fills what was left open and checks what belongs together. `program_folder` is where this program
// is, `folders` what is used where none are named.
Status finish(Config& config, const std::string& program_folder, const control::Folders& folders);

using control::Address;
using control::is_loopback;
using control::parse_address;

}  // namespace flyt::node
