// ContextSubjects: a session's contexts and each client thread's default stream in them.
#pragma once

#include <cstdint>
#include <map>
#include <shared_mutex>
#include <utility>

#include "base/annotations.h"
#include "cuda/types.h"
#include "server/handles.h"

namespace flyt::server {

class Session;

// What a context is, so that the client ends it in the way that it was made.
struct ContextOrigin : Attachment {
  ContextOrigin(CUdevice of, bool is_primary) : device(of), primary(is_primary) {}
  const CUdevice device;
  const bool primary;
  // Waits for the context's work hold it shared, off the main thread; whoever lets the driver end
  // the context holds it alone and sets `ended`: nobody is inside the driver then, or ever will be.
  std::shared_mutex waits;
  bool ended = false;  // Guarded by `waits`.
};

// Safe from any thread.
class ContextSubjects {
 public:
  explicit ContextSubjects(Session& session) : session_(session) {}

  // See Session::thread_stream().
  CUstream thread_stream(std::uint32_t context, std::uint32_t thread) EXCLUDES(mutex_);

  // What an entry of the contexts' table is.
  static ContextOrigin& origin(const Handles::Entry& entry);
  // Whether the client has a handle of a device's primary context.
  bool has_primary(CUdevice device) const;

  // Before the driver destroys or resets a context: waits for its work, lets go of all that dies
  // with it, and makes its handle unknown. The caller holds endings().
  void let_go(const Handles::Entry& context);

  // How many times a device's primary context was retained for this client.
  void count_retained(CUdevice device) EXCLUDES(mutex_);
  // Gives the count back and starts again from 0.
  int take_retained(CUdevice device) EXCLUDES(mutex_);

 private:
  Session& session_;
  Mutex mutex_;
  // By context index and thread number.
  std::map<std::pair<std::uint32_t, std::uint32_t>, CUstream> thread_streams_ GUARDED_BY(mutex_);
  std::map<CUdevice, int> retained_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
