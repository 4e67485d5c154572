#include "base/fd.h"

#include <unistd.h>

namespace flyt {

void Fd::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace flyt
