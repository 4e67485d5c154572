// Watcher: one of a limited number of those who watch.
#pragma once

#include <grpcpp/support/status.h>

#include <atomic>

namespace flyt::control {

class Watcher {
 public:
  Watcher(std::atomic<int>& count, int most) : total_(count), fits_(++count <= most) {}
  ~Watcher() { --total_; }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  // Whether there was room.
  grpc::Status status() const {
    if (fits_) return grpc::Status::OK;
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watch already"};
  }

 private:
  std::atomic<int>& total_;
  const bool fits_;
};

}  // namespace flyt::control
