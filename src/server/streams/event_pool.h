// EventPool: events of our own, by context, so that none is created for every use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::server {

class EventPool;

// Events of one life of a context.
struct ContextEvents {
  std::shared_mutex use;  // Shared while the driver works with an event, so that none dies then.
  bool dead = false;      // Guarded by `use`.
  std::vector<CUevent> free;  // Guarded by the pool's mutex.
};

// A point in a stream that can be polled and waited for. Goes back to its pool at destruction.
// The last owner may be any thread.
class Fence {
 public:
  Fence(EventPool& pool, std::uint32_t context, std::shared_ptr<ContextEvents> home, CUevent event)
      : pool_(pool), context_(context), home_(std::move(home)), event_(event) {}
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  ~Fence();

  std::uint32_t context() const { return context_; }
  CUevent event() const { return event_; }
  // CUDA_ERROR_NOT_READY while the stream has not passed. A dead context has passed everything.
  CUresult poll() const;
  CUresult wait() const;

 private:
  EventPool& pool_;
  const std::uint32_t context_;
  const std::shared_ptr<ContextEvents> home_;
  const CUevent event_;
};

// Safe from any thread.
class EventPool {
 public:
  explicit EventPool(const driver::Table& driver) : driver_(driver) {}
  ~EventPool() = default;  // The events die with the process's contexts.
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // Marks the present end of a stream of the context that is current on this thread. Null, with
  // the driver's result, if that fails.
  std::shared_ptr<Fence> record(std::uint32_t context, CUstream stream, CUresult& result)
      EXCLUDES(mutex_);
  // The context is idle and about to die with its events; those of a green context would stay.
  enum class Events : std::uint8_t { kDieWithIt, kStay };
  void drop_context(std::uint32_t context, Events events = Events::kDieWithIt) EXCLUDES(mutex_);

 private:
  friend class Fence;
  void give(ContextEvents& home, CUevent event) EXCLUDES(mutex_);

  const driver::Table& driver_;
  Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<ContextEvents>> contexts_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
