// Refusals: which refused things the log has named already.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "base/annotations.h"
#include "base/log.h"

namespace flyt::client {

// Safe from any thread.
class Refusals {
 public:
  // Whether this is the first time that it is asked about a name; never where it knows too many.
  bool first(const std::string& name) {
    const Lock lock(mutex_);
    return named_.size() < kNamesMax && named_.insert(name).second;
  }

  // Logs a refused call, once a name.
  void note(const Log& log, const char* name, const char* reason) {
    if (!first(name)) return;
    log.warn("not supported", {{"call", name}, {"reason", reason}});
  }

 private:
  static constexpr std::size_t kNamesMax = 4096;

  Mutex mutex_;
  std::set<std::string> named_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
