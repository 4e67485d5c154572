// SharedMutex: a lock in memory that processes share, which survives the death of its holder.
#pragma once

#include <pthread.h>

#include <cerrno>

#include "base/annotations.h"
#include "base/assert.h"

namespace flyt::server {

// What it guards must be whole after every single store: a holder may be killed between any two,
// and the next one goes on with what stands there.
class CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() {
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    const int made = ::pthread_mutex_init(&mutex_, &attributes);
    ::pthread_mutexattr_destroy(&attributes);
    FLYT_ASSERT(made == 0);
  }
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() ACQUIRE() {
    const int locked = ::pthread_mutex_lock(&mutex_);
    if (locked == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
    FLYT_ASSERT(locked == 0 || locked == EOWNERDEAD);
  }
  void unlock() RELEASE() { ::pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

class SCOPED_CAPABILITY SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~SharedLock() RELEASE() { mutex_.unlock(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace flyt::server
