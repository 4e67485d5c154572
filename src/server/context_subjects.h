// ContextSubjects: a session's contexts and each client thread's default stream in them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "server/handles.h"
#include "server/resources.h"

namespace flyt::server {

class Session;
class StreamOwner;

// What a context is, so that the client ends it in the way that it was made.
struct ContextOrigin : Attachment {
  ContextOrigin(CUdevice of, bool is_primary) : device(of), primary(is_primary) {}
  // What a green context of the primary one with index `of_home` is converted to.
  ContextOrigin(CUdevice of, CUgreenCtx made_of, std::uint64_t name, std::uint32_t of_home)
      : device(of), primary(false), green(made_of), green_handle(name), home(of_home) {}
  const CUdevice device;
  const bool primary;
  // Of a primary context whose work is confined to the lease's multiprocessors, or may be: itself.
  // In its place stands the present part (Moves).
  CUcontext confined = nullptr;
  const CUgreenCtx green = nullptr;  // The driver's, with the client's handle of it.
  const std::uint64_t green_handle = 0;
  const std::uint32_t home = 0;
  // Waits for the context's work hold it shared, off the main thread; whoever lets the driver end
  // the context holds it alone and sets `ended`: nobody is inside the driver then, or ever will be.
  std::shared_mutex waits;
  bool ended = false;  // Guarded by `waits`.
};

// Safe from any thread.
class ContextSubjects {
 public:
  explicit ContextSubjects(Session& session) : session_(session) {}

  // Green contexts that a client may have at a time.
  static constexpr std::size_t kGreensMax = 1024;
  static constexpr std::size_t kDescriptionsMax = 65536;

  // See Session::thread_stream().
  CUstream thread_stream(std::uint32_t context, std::uint32_t thread) EXCLUDES(mutex_);

  // Those that there are in a context, also by the threads' numbers.
  std::vector<CUstream> thread_streams(std::uint32_t context) EXCLUDES(mutex_);
  std::vector<std::pair<std::uint32_t, std::shared_ptr<StreamOwner>>> thread_stream_owners(
      std::uint32_t context) EXCLUDES(mutex_);
  // Null where there is none.
  std::shared_ptr<StreamOwner> thread_stream_owner(std::uint32_t context, std::uint32_t thread)
      EXCLUDES(mutex_);
  // The thread has none any more.
  std::vector<std::shared_ptr<StreamOwner>> take_thread_streams(std::uint32_t thread)
      EXCLUDES(mutex_);
  void replace_thread_stream(std::uint32_t context, std::uint32_t thread,
                             std::shared_ptr<StreamOwner> fresh) EXCLUDES(mutex_);

  // What an entry of the contexts' table is.
  static ContextOrigin& origin(const Handles::Entry& entry);
  // The context that keeps what is registered in it.
  static CUcontext keeper(const Handles::Entry& entry) {
    const CUcontext confined = origin(entry).confined;
    return confined != nullptr ? confined : static_cast<CUcontext>(entry.native);
  }
  // The context to which belongs what is made in a context: itself, or of a green one its primary.
  std::uint32_t home_of(std::uint32_t context) const {
    return greens_.load(std::memory_order_acquire) == 0 ? context : home_of_green(context);
  }
  // Whether there are green contexts of it.
  bool has_greens(std::uint32_t context) const EXCLUDES(homes_mutex_);
  // Whether the client may have one more description of resources: none is ever given back.
  bool may_describe() { return descriptions_.fetch_add(1) < kDescriptionsMax; }
  // CUDA_ERROR_OUT_OF_MEMORY where the client has too many.
  CUresult note_green(std::uint32_t context, std::uint32_t home) EXCLUDES(homes_mutex_);
  // Lets go of what a green context is converted to, and has the driver destroy it. The caller
  // holds endings().
  CUresult end_green(const Handles::Entry& context);

  // Whether the client has a handle of a device's primary context.
  bool has_primary(CUdevice device) const;
  // How many contexts it has, green ones not counted.
  std::size_t count() const;

  // Before the driver destroys or resets a context: ends its green contexts, waits for its work,
  // lets go of all that dies with it, and makes its handle unknown. The caller holds endings().
  void let_go(const Handles::Entry& context);

  Resources& resources() { return resources_; }

  // A stream of the context has ended; the driver goes on with what is in it, and no stream tells
  // when that is done. How many have ended, or 0 when the work of all is known done; and that it
  // is, of the first so many.
  void note_ended_stream(std::uint32_t context) EXCLUDES(mutex_);
  std::uint64_t ended_streams(std::uint32_t context) EXCLUDES(mutex_);
  void note_ended_streams_done(std::uint32_t context, std::uint64_t ended) EXCLUDES(mutex_);

  // How many times a device's primary context was retained for this client.
  void count_retained(CUdevice device) EXCLUDES(mutex_);
  // Gives the count back and starts again from 0.
  int take_retained(CUdevice device) EXCLUDES(mutex_);

 private:
  std::uint32_t home_of_green(std::uint32_t context) const EXCLUDES(homes_mutex_);
  void forget_green(std::uint32_t context) EXCLUDES(homes_mutex_);
  void destroy_thread_streams(std::uint32_t context) EXCLUDES(mutex_);
  // The green contexts of a context.
  std::vector<Handles::Entry> greens_of(std::uint32_t context) const;
  // All that dies with a context; under alone().
  void forget_all_of(const Handles::Entry& context) EXCLUDES(mutex_);

  Session& session_;
  std::atomic<std::size_t> greens_{0};
  std::atomic<std::size_t> descriptions_{0};
  mutable Mutex homes_mutex_;
  std::map<std::uint32_t, std::uint32_t> homes_ GUARDED_BY(homes_mutex_);  // Of green contexts.
  Mutex mutex_;
  // By context index and thread number.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::shared_ptr<StreamOwner>> thread_streams_
      GUARDED_BY(mutex_);
  struct EndedStreams {
    std::uint64_t count = 0;
    std::uint64_t done = 0;
  };
  std::map<std::uint32_t, EndedStreams> ended_streams_ GUARDED_BY(mutex_);  // By context index.
  std::map<CUdevice, int> retained_ GUARDED_BY(mutex_);
  Resources resources_;
};

}  // namespace flyt::server
