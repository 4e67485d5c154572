// Context: the streams, limits and fate of one CUDA context.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/interpreter/grid.h"
#include "softgpu/kernel_heap.h"
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
  std::uint64_t handle() const { return handle_; }

  Device& device() const { return device_; }
  bool primary() const { return primary_; }
  std::uint64_t id() const { return id_; }
  const std::shared_ptr<Fate>& fate() const { return fate_; }

  // Adds an operation to a stream of this context, ordered with the legacy default stream as
  // CUDA demands.
  Ticket submit(Stream& stream, Operation operation);
  Ticket submit(Stream& stream, std::function<void()> run);

  // Has the stream nothing to do? The legacy default stream is busy while any blocking one is.
  bool idle(const Stream& stream) const;

  // Waits until all that was submitted so far is done; the context's error.
  CUresult synchronize();

  std::shared_ptr<Stream> add_stream(unsigned flags, int priority);
  const std::shared_ptr<Stream>& legacy() const { return legacy_; }
  // The default stream of thread number `thread`, made at first use.
  std::shared_ptr<Stream> per_thread(std::uint64_t thread);

  // CUDA_ERROR_UNSUPPORTED_LIMIT where there is no such limit here.
  CUresult limit(CUlimit limit, std::size_t* value) const;
  CUresult set_limit(CUlimit limit, std::size_t value);
  unsigned flags() const;
  void set_flags(unsigned flags);
  CUfunc_cache cache_config() const;
  void set_cache_config(CUfunc_cache config);

  KernelHeap& heap() { return heap_; }

  // A running kernel; ends with the context.
  void add_grid(ptx::Grid* grid);
  void remove_grid(ptx::Grid* grid);

  // Stops what runs, drops what waits, and comes back when nothing of it runs any more.
  void end();

  // Contexts whose memory this one has asked to touch.
  bool enable_peer(std::uint64_t context);
  bool disable_peer(std::uint64_t context);

 private:
  std::vector<std::shared_ptr<Stream>> streams() const;
  std::shared_ptr<Stream> make_stream(unsigned flags, int priority) REQUIRES(mutex_);

  Device& device_;
  Workers& workers_;
  const bool primary_;
  const std::uint64_t id_;
  std::uint64_t handle_ = 0;
  const std::shared_ptr<Fate> fate_ = std::make_shared<Fate>();
  KernelHeap heap_;

  Mutex order_;  // One submit() at a time, so that tickets are in order among streams.

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Stream>> streams_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::shared_ptr<Stream>> per_thread_ GUARDED_BY(mutex_);
  std::set<ptx::Grid*> grids_ GUARDED_BY(mutex_);
  std::set<std::uint64_t> peers_ GUARDED_BY(mutex_);
  std::array<std::size_t, CU_LIMIT_MAX> limits_ GUARDED_BY(mutex_);
  unsigned flags_ GUARDED_BY(mutex_);
  CUfunc_cache cache_config_ GUARDED_BY(mutex_) = CU_FUNC_CACHE_PREFER_NONE;
  std::uint64_t next_stream_ GUARDED_BY(mutex_) = 7;  // The legacy stream's number on NVIDIA.
  std::shared_ptr<Stream> legacy_;                    // Set by set_handle().
};

}  // namespace flyt::softgpu
