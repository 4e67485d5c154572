// FLYT_ASSERT: stops the process on what only a bug of ours can cause; on in every build.
#pragma once

namespace flyt {

// Writes one line to stderr and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace flyt

#define FLYT_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::flyt::assertion_failed(#condition, __FILE__, __LINE__))
