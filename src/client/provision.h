// Provision: where this process's GPU is, and what lets it in.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "transport/transport.h"

namespace flyt::client {

struct Provision {
  std::string url;
  std::string credential;
  // To the client manager: the GPU is this process's for as long as it is open. None where the
  // environment names a server.
  std::unique_ptr<transport::Connection> desk;
};

// FLYT_SERVER; where it is not set, what this machine's client manager grants, within FLYT_WAIT_MS.
// kNotFound: there is neither. What went wrong has been said in the log.
Result<Provision> find_provision(const Log& log);

}  // namespace flyt::client
