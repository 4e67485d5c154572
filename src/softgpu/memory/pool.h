// Pool: stream-ordered allocation: the bookkeeping of one CUmemoryPool.
#pragma once

#include <cstdint>
#include <map>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/memory/regions.h"

namespace flyt::softgpu {

class Device;

// Safe from any thread. Memory freed into it stays reserved until a trim or a synchronisation that
// finds more than the release threshold.
class Pool {
 public:
  Pool(Device& device, Regions& regions, const CUmemPoolProps& props)
      : device_(device),
        regions_(regions),
        props_(props),
        readers_(device_set_of(device)),
        writers_(readers_) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void set_handle(std::uint64_t handle) { handle_ = handle; }
  Device& device() const { return device_; }
  const CUmemPoolProps& props() const { return props_; }

  CUresult allocate(std::uint64_t bytes, std::uint64_t context, CUdeviceptr* out);
  // Memory that `stream` frees when it comes to it serves the stream's next allocation at once:
  // pending_free() tells of it, reuse() takes it back (0: there is none), and finish_free() gives
  // back the memory of one that was not taken back, in one step: an allocation finds it either
  // pending or free.
  std::uint64_t pending_free(const Region& region, const void* stream);
  CUdeviceptr reuse(std::uint64_t bytes, const void* stream);
  void finish_free(const Region& region, std::uint64_t token);

  // Gives back the memory of a region that was one of this pool's, and is no longer known.
  void release(const Region& region);
  void trim(std::uint64_t keep);
  // What a synchronisation does.
  void trim_to_threshold();

  CUresult attribute(CUmemPool_attribute attribute, void* value) const;
  CUresult set_attribute(CUmemPool_attribute attribute, const void* value);
  void set_access(int device, CUmemAccess_flags flags);
  CUmemAccess_flags access(int device) const;

 private:
  static DeviceSet device_set_of(const Device& device);
  bool reserve(std::uint64_t bytes) REQUIRES(mutex_);
  void give_back(const Region& region) REQUIRES(mutex_);

  struct PendingFree {
    const void* stream = nullptr;
    std::uint64_t token = 0;
    std::uint64_t bytes = 0;
  };

  Device& device_;
  Regions& regions_;
  const CUmemPoolProps props_;
  std::uint64_t handle_ = 0;
  mutable Mutex mutex_;
  std::uint64_t placed_ GUARDED_BY(mutex_) = 0;  // Bytes of address ranges in use.
  std::uint64_t used_ GUARDED_BY(mutex_) = 0;    // Bytes asked for.
  std::uint64_t used_high_ GUARDED_BY(mutex_) = 0;
  std::uint64_t reserved_ GUARDED_BY(mutex_) = 0;  // Charged to the device.
  std::uint64_t reserved_high_ GUARDED_BY(mutex_) = 0;
  std::uint64_t threshold_ GUARDED_BY(mutex_) = 0;
  int follow_events_ GUARDED_BY(mutex_) = 1;
  int opportunistic_ GUARDED_BY(mutex_) = 1;
  int internal_dependencies_ GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, PendingFree> pending_ GUARDED_BY(mutex_);  // By address.
  std::uint64_t next_token_ GUARDED_BY(mutex_) = 0;
  DeviceSet readers_ GUARDED_BY(mutex_);
  DeviceSet writers_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
