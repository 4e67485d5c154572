// PerThreadDefaultStream: whether stream 0 means the calling thread's own default stream.
#pragma once

#include "cuda/types.h"

namespace flyt::cuda {

// While one lives, stream 0 of calls made on this thread is CU_STREAM_PER_THREAD: what the exports
// ending in _ptsz and _ptds promise. Belongs to the thread that made it; nests.
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream();
  ~PerThreadDefaultStream();
  PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
  PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;

  // Whether one lives on this thread.
  static bool active();

 private:
  bool before_;
};

// Stream 0 becomes CU_STREAM_PER_THREAD within a PerThreadDefaultStream and CU_STREAM_LEGACY
// elsewhere; every other stream stays what it is.
CUstream resolve_default(CUstream stream);

}  // namespace flyt::cuda
