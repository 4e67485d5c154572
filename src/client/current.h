// The one global of the client library: the session that this process has.
#pragma once

#include "cuda/types.h"

namespace flyt::client {

class Session;

// Null before a successful cuInit and, for ever, in a child made by fork().
Session* current_session();

// Opens the session that FLYT_SERVER names, once: a failed start can be tried again only if no
// session came to be. Later calls tell whether its server is still there, as every call does.
CUresult start_session();

// The session whose stubs and hooks run on this thread, in place of the process's: the simulator
// runs several clients in one process. Restores at destruction.
class SessionScope {
 public:
  explicit SessionScope(Session* session);
  ~SessionScope();
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;

 private:
  Session* before_;
};

}  // namespace flyt::client
