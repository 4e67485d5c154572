// RecoveryThread: a program that makes no calls hears of its session's loss, too, so that the
// session goes on before the server has forgotten it.
#pragma once

#include "base/annotations.h"
#include "rpc/thread.h"

namespace flyt::client {

class Session;

class RecoveryThread {
 public:
  // The session outlives it.
  explicit RecoveryThread(Session& session) : session_(session) {}
  ~RecoveryThread();
  RecoveryThread(const RecoveryThread&) = delete;
  RecoveryThread& operator=(const RecoveryThread&) = delete;

  // Without the thread the session goes on with the program's next call.
  void start();

 private:
  void run();
  bool wait() EXCLUDES(mutex_);

  Session& session_;
  Mutex mutex_;
  Condition stopped_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  rpc::Thread thread_;
};

}  // namespace flyt::client
