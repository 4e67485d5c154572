// ResizeWorker: the thread of a session that hears of changes of the lease's groups and makes ready
// what the main thread then only has to put in place.
#pragma once

#include <atomic>
#include <thread>

namespace flyt::server {

class Session;
class UsageBoard;

class ResizeWorker {
 public:
  // Both outlive it.
  ResizeWorker(Session& session, UsageBoard& board);
  ~ResizeWorker();
  ResizeWorker(const ResizeWorker&) = delete;
  ResizeWorker& operator=(const ResizeWorker&) = delete;

 private:
  void loop();

  Session& session_;
  UsageBoard& board_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace flyt::server
