#include "server/faults/fault_worker.h"

#include <utility>

namespace flyt::server {
namespace {

// How long the destructor may take if it comes in the very moment before the wait.
constexpr Duration kTurn = std::chrono::milliseconds(500);

}  // namespace

FaultWorker::FaultWorker(FaultBoard& board, std::function<void()> told)
    : board_(board), told_(std::move(told)) {
  thread_ = std::thread([this] { loop(); });
}

FaultWorker::~FaultWorker() {
  stopping_.store(true);
  board_.rouse();
  thread_.join();
}

void FaultWorker::loop() {
  while (!stopping_.load()) {
    if (board_.told()) {
      told_();
    } else {
      board_.wait(kTurn);
    }
  }
}

}  // namespace flyt::server
