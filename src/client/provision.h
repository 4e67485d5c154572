// Provision: where this process's GPU is, and what lets it in.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
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
  Instant ask_until;   // The client manager, at most.
  unsigned asked = 0;  // How often it was.
};

// FLYT_SERVER; where it is not set, what this machine's client manager grants, within FLYT_WAIT_MS.
// kNotFound: there is neither. What went wrong has been said in the log.
Result<Provision> find_provision(const Log& log);

// The server of `provision` did not let this process in, for that reason. What a client manager
// grants may have been taken away just then: it is asked again, a few times and within
// FLYT_WAIT_MS. True: `provision` is to be tried again. False: it stays as it is.
bool find_anew(Provision& provision, const Error& why, const Log& log);

}  // namespace flyt::client
