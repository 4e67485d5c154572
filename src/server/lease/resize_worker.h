// ResizeWorker: the thread of a session that hears of changes of the lease's groups and makes ready
// what the main thread then only has to put in place. It also hears that the session is to end.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>

namespace flyt::server {

class Session;
class UsageBoard;

class ResizeWorker {
 public:
  // Both outlive it. `slot`: the session's place on the board.
  ResizeWorker(Session& session, UsageBoard& board, std::size_t slot);
  ~ResizeWorker();
  ResizeWorker(const ResizeWorker&) = delete;
  ResizeWorker& operator=(const ResizeWorker&) = delete;

 private:
  void loop();

  Session& session_;
  UsageBoard& board_;
  const std::size_t slot_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace flyt::server
