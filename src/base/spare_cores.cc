#include "base/spare_cores.h"

#include <unistd.h>

#include <cstdlib>

namespace flyt {

bool SpareCores::any(Instant now) {
  if (now - looked_ < kLooks) return any_;
  looked_ = now;
  const double cores = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  double load = cores;
  any_ = ::getloadavg(&load, 1) == 1 && cores >= kCoresMin && load < cores / 2;
  return any_;
}

}  // namespace flyt
