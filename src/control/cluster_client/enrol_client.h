// EnrolClient: how a machine without a certificate asks a cluster manager for one.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"

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

}  // namespace flyt::cluster
