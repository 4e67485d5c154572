// Refusals: which refused calls the log has named already.
#pragma once

#include <set>
#include <string>

#include "base/annotations.h"
#include "base/log.h"

namespace flyt::client {

// Safe from any thread.
class Refusals {
 public:
  // Logs a refused call, once a name.
  void note(const Log& log, const char* name, const char* reason) {
    {
      const Lock lock(mutex_);
      if (!named_.insert(name).second) return;
    }
    log.warn("not supported", {{"call", name}, {"reason", reason}});
  }

 private:
  Mutex mutex_;
  std::set<std::string> named_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
