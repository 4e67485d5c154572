// Config: what a cluster manager's file says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/cluster/scaling/scaler.h"
#include "control/settings/folders.h"
#include "control/settings/settings.h"

namespace flyt::cluster {

struct Config {
  // [cluster]
  std::string name;              // This manager's, of several; the machine's unless set.
  std::string store = "sqlite";  // Or etcd:HOST:PORT[,HOST:PORT...].
  std::string advertise;         // Where the other managers reach this one.
  std::string state_folder;      // The database.
  std::string run_folder;        // The socket.
  std::string log_level = "info";

  // [api]
  std::string api_unix;  // A path; cluster.sock in the run folder unless set.
  std::string api_tcp;   // HOST:PORT; empty: none.
  std::string cert;
  std::string key;
  std::string ca;
  std::string crl;  // Certificates that were revoked; empty: none is.

  // [etcd]
  std::string etcd_prefix = "/flyt/";
  std::uint32_t etcd_lease_seconds = 2;  // Until another manager decides, if this one is gone.
  control::TlsFiles etcd_tls;            // Empty: in the clear.

  // [enrol]
  std::string enrol;  // HOST:PORT at which machines get their first certificate; empty: nowhere.
  std::string enrol_key;                    // Of the authority in api.ca.
  std::uint32_t enrol_days = 365;           // How long certificates are valid.
  std::uint32_t enrol_token_seconds = 900;  // How long tokens are.

  // [access]: users of this machine, by name or number, beside root and the manager's own.
  std::vector<std::string> operators;
  std::vector<std::string> viewers;

  // [nodes]
  std::uint32_t report_seconds = 2;
  std::uint32_t lost_seconds = 10;  // Without a report.

  // [vms]
  std::uint32_t grace_seconds = 60;  // Without a program, until a virtual GPU is taken back.
  bool free_unused = true;
  std::uint32_t keep_seconds = 30;  // A wish that nobody renews.

  // [placement]
  std::string policy = "host-first";

  // [scaling]: of VMs with sms_min and sms_max.
  std::uint32_t scaling_window_seconds = 15;
  std::uint32_t scaling_cool_down_seconds = 60;
  std::uint32_t grow_above = 80;  // Percent.
  std::uint32_t shrink_below = 40;

  // [requirements]: VMs' requirements from a database that somebody else keeps.
  std::string mongodb;  // Its URI, perhaps with a secret; empty: operators set all VMs.
  std::string mongodb_database = "flyt";
  std::string mongodb_collection = "vm_required_resources";
  std::string mongodb_password_file;
  std::uint32_t requirements_seconds = 10;  // From one reading to the next.

  // [page]
  std::string page;  // HOST:PORT of the web page; empty: none.

  // [metrics]
  std::string metrics;        // HOST:PORT of the loopback interface; empty: none.
  std::string metrics_token;  // A file with the token that admits to /metrics and /readyz there.

  // [events]
  std::uint64_t events_max = 10000;
  std::uint64_t audit_max = 100000;
};

// Parses and checks. An error says FILE:LINE, the key and what it should be.
Result<Config> parse_config(std::string_view text, const std::string& file);
Result<Config> read_config(const std::string& path);
// That the files it names can be read; an error names all that cannot.
Status check_files(const Config& config);
scaling::Rules scaling_rules(const Config& config);

inline bool uses_etcd(const Config& config) { return config.store != "sqlite"; }

// Fills what was left open and checks what belongs together. `folders` are used where
// none are named.
Status finish(Config& config, const control::Folders& folders);

}  // namespace flyt::cluster
