// CoreDumpSettings: what cuCoredump* keep. No GPU core dump is ever made here: that one shall be is
// refused, whatever else may be said about it is kept and told.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::cuda {

// Safe from any thread. A null context means the settings of the process, which new contexts have.
class CoreDumpSettings {
 public:
  static constexpr std::size_t kNameBytes = 1024;  // With the zero byte.

  // As cuCoredumpGetAttribute.
  CUresult get(CUcontext context, CUcoredumpSettings attribute, void* value, std::size_t* size)
      EXCLUDES(mutex_);
  // As cuCoredumpSetAttribute; CUDA_ERROR_NOT_SUPPORTED for what would make dumps.
  CUresult set(CUcontext context, CUcoredumpSettings attribute, void* value, std::size_t* size)
      EXCLUDES(mutex_);
  // The context ends.
  void end(CUcontext context) EXCLUDES(mutex_);

 private:
  struct Values {
    bool trigger_host = true;
    bool lightweight = false;
    unsigned int flags = 0;
    std::string file;  // Empty: the default name, which is told so.
    std::string pipe;  // Empty: the default name.
  };

  const Values& values(CUcontext context) const REQUIRES(mutex_);

  Mutex mutex_;
  Values global_ GUARDED_BY(mutex_);
  std::map<CUcontext, Values> own_ GUARDED_BY(mutex_);  // Of contexts with settings of their own.
};

}  // namespace flyt::cuda
