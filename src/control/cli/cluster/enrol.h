// Enrol: `flytctl enrol-token` and `flytctl enrol`: a machine's first certificate, for a token.
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
  // Of `enrol`.
  std::vector<std::string> servers;  // HOST:PORT
  std::string token_file;            // "-": the standard input; empty: FLYT_ENROL_TOKEN.
  std::string folder = "/etc/flyt";
};

Status enrol_token_create(const EnrolOptions& options);
Status enrol_token_list(const EnrolOptions& options);
Status enrol_token_revoke(const EnrolOptions& options);
// Makes NAME.key, NAME.crt and ca.crt in the folder, which must not have them, but for the same
// ca.crt. Nothing is written unless the certificate is there.
Status enrol(const EnrolOptions& options);

}  // namespace flyt::cli
