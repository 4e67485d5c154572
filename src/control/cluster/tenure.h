// Tenure: for how long one cluster manager decides, and nobody else.
#pragma once

#include <cstdint>
#include <string>

#include "base/annotations.h"
#include "base/clock.h"

namespace flyt::cluster {

// Safe from any thread.
class Tenure {
 public:
  // `key` was made for it by the commit `fence`: while both are so, it has not ended.
  Tenure(const Clock& clock, std::string key, std::uint64_t fence, Instant until)
      : clock_(clock), key_(std::move(key)), fence_(fence), until_(until) {}
  Tenure(const Tenure&) = delete;
  Tenure& operator=(const Tenure&) = delete;

  const std::string& key() const { return key_; }
  std::uint64_t fence() const { return fence_; }
  // False from the moment on from which somebody else might decide.
  bool holds() const {
    const Lock lock(mutex_);
    return why_.empty() && clock_.now() < until_;
  }
  bool ended() const {
    const Lock lock(mutex_);
    return !why_.empty();
  }
  void extend(Instant until) {
    const Lock lock(mutex_);
    until_ = until;
  }
  // For ever; the first reason stays.
  void end(const std::string& why) {
    const Lock lock(mutex_);
    if (why_.empty()) why_ = why;
  }
  // Why it does not hold; empty: it does.
  std::string why() const {
    const Lock lock(mutex_);
    if (!why_.empty() || clock_.now() < until_) return why_;
    return "etcd has not answered for too long";
  }

 private:
  const Clock& clock_;
  const std::string key_;
  const std::uint64_t fence_;
  mutable Mutex mutex_;
  Instant until_ GUARDED_BY(mutex_);
  std::string why_ GUARDED_BY(mutex_);
};

}  // namespace flyt::cluster
