// Lock annotations that clang checks (-Wthread-safety) and a mutex that carries them.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define FLYT_THREAD(x) __attribute__((x))
#else
#define FLYT_THREAD(x)
#endif

#define CAPABILITY(x) FLYT_THREAD(capability(x))
#define SCOPED_CAPABILITY FLYT_THREAD(scoped_lockable)
#define GUARDED_BY(x) FLYT_THREAD(guarded_by(x))
#define REQUIRES(...) FLYT_THREAD(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) FLYT_THREAD(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) FLYT_THREAD(acquire_capability(__VA_ARGS__))
#define RELEASE(...) FLYT_THREAD(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) FLYT_THREAD(try_acquire_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(x) FLYT_THREAD(lock_returned(x))
#define NO_THREAD_SAFETY_ANALYSIS FLYT_THREAD(no_thread_safety_analysis)

namespace flyt {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

class SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() RELEASE() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits with a Mutex held; wait in a loop that checks the guarded state.
using Condition = std::condition_variable_any;

}  // namespace flyt
