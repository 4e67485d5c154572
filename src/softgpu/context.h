// Context: the streams, limits and fate of one CUDA context.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "cuda/types.h"
#include "softgpu/interpreter/grid.h"
#include "softgpu/kernel_heap.h"
#include "softgpu/partition.h"
#include "softgpu/shared_faults.h"
#include "softgpu/stream.h"

namespace flyt::softgpu {

class Device;

inline constexpr int kPriorityLeast = 0;
inline constexpr int kPriorityGreatest = -5;
inline constexpr unsigned kContextApiVersion = 3020;

// Safe from any thread.
class Context {
 public:
  Context(Device& device, Workers& workers, unsigned flags, bool primary, std::uint64_t id);

  // Its own handle; told once, before anybody else knows it.
  void set_handle(std::uint64_t handle);
  // What it has of the GPU until its end; told in the same way.
  void set_place(SharedFaults::Place place) { place_ = std::move(place); }
  std::uint64_t handle() const { return handle_; }

  Device& device() const { return device_; }
  bool primary() const { return primary_; }
  // What cuCtxAttach counts; detach() says whether nobody is left.
  void attach() { attached_.fetch_add(1); }
  bool detach() { return attached_.fetch_sub(1) == 1; }
  std::uint64_t id() const { return id_; }
  const std::shared_ptr<Fate>& fate() const { return fate_; }

  // Adds an operation to a stream of this context, in its partition's order.
  Ticket submit(Stream& stream, Operation operation);
  Ticket submit(Stream& stream, std::function<void()> run);

  // Waits until all that was submitted so far is done, in green contexts too; the context's error.
  CUresult synchronize();
  // The same of one partition; of all of them for that of the whole device.
  CUresult synchronize(const Partition& partition);
  // A ticket for the end of what such a synchronize() waits for; `run` is called then.
  Ticket mark(const Partition& partition, std::function<void()> run);
  // Work of such partitions that is submitted from now on waits for the operation.
  void hold_back(const Partition& partition, Operation operation);

  // All of the device.
  const std::shared_ptr<Partition>& whole() const { return whole_; }
  // What a CUcontext of this context stands for; null: it is none, or was a green context.
  std::shared_ptr<Partition> partition(std::uint64_t handle) const;
  std::shared_ptr<Partition> add_green(const Partition::Names& names,
                                       std::shared_ptr<const SmSet> sms);
  // At the context's end: they are of no use any more.
  void end_greens();
  // Waits for its work; its streams are of no use any more.
  void end_green(const std::shared_ptr<Partition>& partition);

  // CUDA_ERROR_UNSUPPORTED_LIMIT where there is no such limit here.
  CUresult limit(CUlimit limit, std::size_t* value) const;
  // Before a launch: the first one after kernels' stacks were made larger waits for all work of the
  // context, and what comes after it as well, as with NVIDIA's driver (seen on an H100, driver
  // 580).
  void make_stacks();
  CUresult set_limit(CUlimit limit, std::size_t value);
  unsigned flags() const;
  void set_flags(unsigned flags);
  CUfunc_cache cache_config() const;
  void set_cache_config(CUfunc_cache config);

  KernelHeap& heap() { return heap_; }

  // A running kernel; ends with the context.
  void add_grid(ptx::Grid* grid);
  void remove_grid(ptx::Grid* grid);

  // Waits a while for what is under way; then stops what runs, drops what waits, and comes back
  // when nothing of it runs any more.
  void end();

  // Threads that are inside a wait for an event of it.
  std::atomic<unsigned>& event_waits() { return event_waits_; }

  // Contexts whose memory this one has asked to touch.
  bool enable_peer(std::uint64_t context);
  bool disable_peer(std::uint64_t context);

 private:
  Duration patience() const;
  bool idle();
  std::vector<std::shared_ptr<Partition>> partitions(const Partition& of) const;
  Ticket submit_apart(Operation operation);

  Device& device_;
  Workers& workers_;
  const bool primary_;
  std::atomic<unsigned> event_waits_{0};
  const std::uint64_t id_;
  std::uint64_t handle_ = 0;
  const std::shared_ptr<Fate> fate_;
  SharedFaults::Place place_;
  KernelHeap heap_;

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Partition>> greens_ GUARDED_BY(mutex_);
  std::set<ptx::Grid*> grids_ GUARDED_BY(mutex_);
  std::set<std::uint64_t> peers_ GUARDED_BY(mutex_);
  std::array<std::size_t, CU_LIMIT_MAX> limits_ GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> attached_{1};
  std::atomic<bool> larger_stacks_{false};  // Than the launches so far have needed.
  unsigned flags_ GUARDED_BY(mutex_);
  CUfunc_cache cache_config_ GUARDED_BY(mutex_) = CU_FUNC_CACHE_PREFER_NONE;
  // The legacy stream's number on NVIDIA is 7.
  const std::shared_ptr<StreamNumbers> numbers_ = std::make_shared<StreamNumbers>(7);
  std::shared_ptr<Partition> whole_;  // Set by set_handle().
};

}  // namespace flyt::softgpu
