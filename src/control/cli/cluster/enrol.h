// Enrol: `flytctl enrol-token`, `flytctl enrol` and `flytctl renew`: a machine's first certificate,
// for a token, and the ones after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/cluster_client/cluster_client.h"

namespace flyt::cli {

struct EnrolOptions {
  cluster::ClusterAddress address;  // For `enrol` only its `ca`.
  bool json = false;
  std::string name;  // Of the machine; or a token's id.
  std::string role;
  std::vector<std::string> hosts;
  std::string lasts;
  // Of `enrol` and `renew`.
  std::vector<std::string> servers;  // HOST:PORT
  std::string folder = "/etc/flyt";
  std::string token_file;  // "-": the standard input; empty: FLYT_ENROL_TOKEN.
  std::string within;      // Renewed if it ends so soon; empty: in the last third of its life.
  std::string then;        // Run by a shell once it is renewed.
};

Status enrol_token_create(const EnrolOptions& options);
Status enrol_token_list(const EnrolOptions& options);
Status enrol_token_revoke(const EnrolOptions& options);
// Makes NAME.key, NAME.crt and ca.crt in the folder, which must not have them, but for the same
// ca.crt. Nothing is written unless the certificate is there.
Status enrol(const EnrolOptions& options);
// Replaces NAME.key and NAME.crt if it is time; the files keep owner and mode.
Status renew(const EnrolOptions& options);

}  // namespace flyt::cli
