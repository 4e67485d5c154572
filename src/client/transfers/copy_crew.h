// CopyCrew: several threads that copy host memory together.
//
// One core copies about a fifth of what the bus of a GPU carries. The helpers start with the first
// large copy; after work they look for more for a short while, then sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "rpc/thread.h"

namespace flyt::client {

// Safe from any thread; who finds the crew at work copies alone.
class CopyCrew {
 public:
  // `helpers`: threads besides the caller's; 0 on machines with too few cores.
  explicit CopyCrew(int helpers) : helpers_wished_(helpers) {}
  ~CopyCrew();
  CopyCrew(const CopyCrew&) = delete;
  CopyCrew& operator=(const CopyCrew&) = delete;

  // The number of helpers that pays on this machine.
  static int helpers_here();

  // Returns when everything is copied. The two ranges do not overlap.
  void copy(void* to, const void* from, std::size_t bytes) EXCLUDES(mutex_);

 private:
  struct Piece {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
  };

  void start_helpers() REQUIRES(mutex_);
  void run() EXCLUDES(job_mutex_);
  // The next piece of the present job; its bytes are 0 if there is none.
  Piece take() EXCLUDES(job_mutex_);
  void done() EXCLUDES(job_mutex_);
  void wait_for_job() EXCLUDES(job_mutex_);

  const int helpers_wished_;
  Mutex mutex_;  // Held by the thread whose job it is.
  std::vector<std::unique_ptr<rpc::Thread>> helpers_ GUARDED_BY(mutex_);
  Mutex job_mutex_;
  Condition wake_;
  Piece rest_ GUARDED_BY(job_mutex_);  // What nobody has taken yet.
  int sleepers_ GUARDED_BY(job_mutex_) = 0;
  std::atomic<int> at_work_{0};  // Pieces taken and not done.
  std::atomic<std::uint64_t> jobs_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace flyt::client
