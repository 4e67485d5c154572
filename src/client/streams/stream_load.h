// StreamLoad: how much a stream has been given that the GPU may not have done yet.
//
// A driver's stream holds about a thousand operations, and whoever adds another waits: natively the
// thread that does, through a server all threads of the program, whose commands come behind. So
// that thread waits here, before the stream is full. The server tells when the stream has come to
// marks that the client puts into it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::client {

class Session;

// Of one stream. Safe from any thread.
class StreamLoad {
 public:
  static constexpr std::uint64_t kLookEvery = 64;

  // One more operation goes into the stream. True: StreamLoads::limit() is due.
  bool add() {
    return given_.fetch_add(1, std::memory_order_relaxed) + 1 >=
           due_.load(std::memory_order_relaxed);
  }
  std::uint64_t given() const { return given_.load(std::memory_order_relaxed); }
  // What was given() is done.
  void note_done(std::uint64_t given);
  // Another stream's now.
  void reset() EXCLUDES(mutex_);

 private:
  friend class StreamLoads;
  // So many operations may not be done before a mark is put behind them, and so many at most: fewer
  // than the server lets a stream hold before it puts all commands off (StreamDepths), as many as
  // can be, for a program may rely on what a stream holds natively.
  static constexpr std::uint64_t kMarked = 6 * kLookEvery;
  static constexpr std::uint64_t kMost = 11 * kLookEvery;

  std::uint64_t outstanding() const { return given() - done_.load(std::memory_order_relaxed); }

  std::atomic<std::uint64_t> given_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> due_{kLookEvery};
  Mutex mutex_;
  // The mark that is on its way, and what was given before it; token 0: there is none.
  std::uint64_t token_ GUARDED_BY(mutex_) = 0;
  std::uint64_t marked_ GUARDED_BY(mutex_) = 0;
};

// The marks of a session's streams. Safe from any thread.
class StreamLoads {
 public:
  // Of the marks that a server heeds; the others are for what the program asks about.
  static constexpr std::size_t kMarksMax = 32;

  explicit StreamLoads(Session& session) : session_(session) {}
  StreamLoads(const StreamLoads&) = delete;
  StreamLoads& operator=(const StreamLoads&) = delete;

  // Waits until the stream has room, if it has none, and marks how far it has been given work. The
  // stream's context is current.
  void limit(CUstream stream, StreamLoad& load) EXCLUDES(mutex_);

  // Of the calling thread's own default stream in the current context.
  StreamLoad& of_thread() EXCLUDES(mutex_);
  // That thread's are gone.
  void on_thread_ends(const void* thread) EXCLUDES(mutex_);
  void on_context_destroyed(std::uint64_t context) EXCLUDES(mutex_);

  // From the thread that reads: whether the token is a mark's, which is passed then.
  bool on_completed(std::uint64_t token) EXCLUDES(mutex_);
  // The server tells nothing any more of the marks there are.
  void forget_all() EXCLUDES(mutex_);

 private:
  // Tokens that are no watch's.
  static constexpr std::uint64_t kFirstToken = std::uint64_t{1} << 63;

  bool passed(std::uint64_t token) EXCLUDES(mutex_);
  void wait_for(std::uint64_t token) EXCLUDES(mutex_);
  void put_mark(CUstream stream, StreamLoad& load) REQUIRES(load.mutex_) EXCLUDES(mutex_);
  // There is no mark to be had: waits for the stream itself.
  void wait_for_all(CUstream stream, StreamLoad& load) REQUIRES(load.mutex_);

  Session& session_;
  Mutex mutex_;
  std::array<std::uint64_t, kMarksMax> pending_ GUARDED_BY(mutex_){};  // 0: none.
  std::uint64_t next_ GUARDED_BY(mutex_) = kFirstToken;
  // By thread and context. Only its own thread uses or removes one.
  std::map<std::pair<const void*, std::uint64_t>, std::unique_ptr<StreamLoad>> of_threads_
      GUARDED_BY(mutex_);
};

// The stream's, of the current context if it is a default stream; null where there is no such
// stream.
StreamLoad* load_of(CUstream stream);

// What a wait for a stream tells of its load.
class LoadSeenDone {
 public:
  // Before the wait.
  explicit LoadSeenDone(CUstream stream)
      : load_(load_of(stream)), given_(load_ == nullptr ? 0 : load_->given()) {}
  // After its success.
  void note() const {
    if (load_ != nullptr) load_->note_done(given_);
  }

 private:
  StreamLoad* const load_;
  const std::uint64_t given_;
};

// The calling thread is about to give the stream one more operation: it waits here until there is
// room. The stream's context is current, and no lock is held.
void give_work(CUstream stream);

}  // namespace flyt::client
