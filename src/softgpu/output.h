// Output: what kernels print, until a synchronising call shows it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/annotations.h"

namespace flyt::softgpu {

// Shown on this process's stdout through its own stdio, so that it stands between what the program
// prints before and after. Safe from any thread.
class Output {
 public:
  void print(std::string_view text);
  // For failed assertions: to stderr, at once.
  void complain(std::string_view text);
  void flush();

 private:
  Mutex mutex_;
  std::string text_ GUARDED_BY(mutex_);
  std::size_t complained_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::softgpu
