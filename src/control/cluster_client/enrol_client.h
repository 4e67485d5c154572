// EnrolClient: how a machine asks a cluster manager for its first certificate, and the next ones.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "control/settings/tls_files.h"

namespace flyt::cluster {

struct EnrolQuestion {
  std::string address;    // HOST:PORT of enrol.listen.
  std::string authority;  // PEM: who must have signed the manager's certificate.
  std::string token;
  std::string role;
  std::string name;
  std::string signing_request;
};

// The certificate. kDenied: the token does not admit it; kLost: nobody answers there who is the
// cluster's, and it has not been told the token.
Result<std::string> ask_to_enrol(const EnrolQuestion& question, Duration patience);

// Another one for who has one. `address`: HOST:PORT of enrol.listen. kDenied: it is not renewed;
// kLost: nobody answers there who is the cluster's.
Result<std::string> ask_to_renew(const std::string& address, const control::TlsFiles& files,
                                 const std::string& signing_request, Duration patience);

}  // namespace flyt::cluster
