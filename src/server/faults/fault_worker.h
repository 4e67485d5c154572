// FaultWorker: the thread of a process that hears of faults on a GPU that processes share.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "server/faults/fault_board.h"

namespace flyt::server {

class FaultWorker {
 public:
  // `told` is called on the worker's thread whenever a fault concerns this process. The board
  // outlives it.
  FaultWorker(FaultBoard& board, std::function<void()> told);
  ~FaultWorker();
  FaultWorker(const FaultWorker&) = delete;
  FaultWorker& operator=(const FaultWorker&) = delete;

 private:
  void loop();

  FaultBoard& board_;
  const std::function<void()> told_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace flyt::server
