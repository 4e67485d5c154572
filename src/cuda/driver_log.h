// DriverLog: what cuLogs* hand out: the last messages about calls that failed, and why.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::cuda {

// Keeps the latest messages; older ones are lost, and a reader is told so. The functions have the
// arguments and results of the calls of their names. Safe from any thread.
class DriverLog {
 public:
  static constexpr std::size_t kMessagesMax = 100;
  static constexpr std::size_t kMessageBytesMax = 254;  // With its newline less than 256.
  static constexpr std::size_t kCallbacksMax = 65536;

  // Keeps one line and calls the callbacks with it, on this thread, without a lock held.
  void write(CUlogLevel level, std::string_view text) EXCLUDES(mutex_);

  CUresult register_callback(CUlogsCallback callback, void* data, CUlogsCallbackHandle* out)
      EXCLUDES(mutex_);
  CUresult unregister_callback(CUlogsCallbackHandle handle) EXCLUDES(mutex_);
  CUresult current(CUlogIterator* out, unsigned int flags) const EXCLUDES(mutex_);
  // Flags mean nothing yet, as natively.
  CUresult dump_to_file(CUlogIterator* iterator, const char* path, unsigned int flags)
      EXCLUDES(mutex_);
  CUresult dump_to_memory(CUlogIterator* iterator, char* buffer, std::size_t* size,
                          unsigned int flags) EXCLUDES(mutex_);

 private:
  struct Callback {
    CUlogsCallback function = nullptr;
    void* data = nullptr;
  };

  // The first message that a dump with `iterator` shows.
  CUlogIterator begin_of(const CUlogIterator* iterator) const REQUIRES(mutex_);
  // The messages from `begin` on, at most `bytes_max` of them, newest kept; says what is left out.
  std::string text_from(CUlogIterator begin, bool lost, std::size_t bytes_max) const
      REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::deque<std::string> messages_ GUARDED_BY(mutex_);  // Each ends with a newline.
  CUlogIterator next_ GUARDED_BY(mutex_) = 0;            // The number of the next message.
  std::map<std::uint64_t, Callback> callbacks_ GUARDED_BY(mutex_);
  std::uint64_t next_callback_ GUARDED_BY(mutex_) = 1;
};

}  // namespace flyt::cuda
