// ManagedRanges: what a program has said about where its managed memory should be, and what CUDA
// answers when it asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::cuda {

// Safe from any thread. Everything is kept a page, as the driver does.
class ManagedRanges {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;

  explicit ManagedRanges(int devices) : devices_(devices) {}

  void add(std::uint64_t base, std::uint64_t bytes) EXCLUDES(mutex_);
  void remove(std::uint64_t base, std::uint64_t bytes) EXCLUDES(mutex_);

  // cuMemAdvise, cuMemPrefetchAsync and cuMemRangeGetAttribute, checks of their arguments included.
  CUresult advise(std::uint64_t address, std::uint64_t bytes, CUmem_advise advice,
                  const CUmemLocation& location) EXCLUDES(mutex_);
  // The same as cuMemAdvise before _v2, which tells unknown devices apart.
  CUresult advise_for(CUdevice device, std::uint64_t address, std::uint64_t bytes,
                      CUmem_advise advice) EXCLUDES(mutex_);
  CUresult prefetch(std::uint64_t address, std::uint64_t bytes, const CUmemLocation& location)
      EXCLUDES(mutex_);
  // Whether a prefetch of this would be refused, and why.
  CUresult check_prefetch(std::uint64_t address, std::uint64_t bytes,
                          const CUmemLocation& location) const EXCLUDES(mutex_);
  // The same in a batch, where no device is a mistake like others.
  CUresult check_prefetch_of_batch(std::uint64_t address, std::uint64_t bytes,
                                   const CUmemLocation& location) const;
  // Whether the range is managed memory: CUDA_ERROR_INVALID_VALUE if not.
  CUresult check(std::uint64_t address, std::uint64_t bytes) const EXCLUDES(mutex_);
  CUresult attribute(void* data, std::size_t size, CUmem_range_attribute attribute,
                     std::uint64_t address, std::uint64_t bytes) const EXCLUDES(mutex_);

 private:
  struct Place {
    CUmemLocationType type{};
    int id = CU_DEVICE_INVALID;
    bool operator==(const Place&) const = default;
  };
  struct Facts {
    std::uint64_t bytes = 0;
    bool read_mostly = false;
    Place preferred;
    Place prefetched;
    std::uint64_t accessed_by = 0;  // Devices.
    bool accessed_by_host = false;
  };
  using Parts = std::map<std::uint64_t, Facts>;

  static Place place_of(const CUmemLocation& location);
  CUresult check_location(const CUmemLocation& location) const;
  CUresult check_advice(CUmem_advise advice, const CUmemLocation& location) const;
  bool covers(std::uint64_t address, std::uint64_t bytes) const REQUIRES(mutex_);
  // The part around an address, which is in one.
  Parts::const_iterator around(std::uint64_t address) const REQUIRES(mutex_);
  // Lets a part begin at this address if one holds it.
  void split(std::uint64_t address) REQUIRES(mutex_);
  template <class Change>
  void change(std::uint64_t address, std::uint64_t bytes, Change&& change) REQUIRES(mutex_);
  // What all parts of a range have in common: the first one's, if the others have the same.
  Place common(std::uint64_t address, std::uint64_t bytes, Place Facts::*which) const
      REQUIRES(mutex_);
  CUresult accessors(void* data, std::size_t size, std::uint64_t address, std::uint64_t bytes) const
      REQUIRES(mutex_);

  const int devices_;
  mutable Mutex mutex_;
  Parts parts_ GUARDED_BY(mutex_);  // By address; they touch but never overlap.
};

// The locations of a batch: one serves all copies from its index up to the next one's.
class BatchLocations {
 public:
  BatchLocations(const CUmemLocation* locations, const std::size_t* indices, std::size_t count,
                 std::size_t operations)
      : locations_(locations), indices_(indices), count_(count), operations_(operations) {}
  bool valid() const;
  const CUmemLocation& of(std::size_t operation) const;

 private:
  const CUmemLocation* locations_;
  const std::size_t* indices_;
  std::size_t count_;
  std::size_t operations_;
};

// What cuStreamAttachMemAsync makes of its arguments, for the managed range around `address`.
CUresult check_attach(CUstream stream, std::uint64_t address, std::uint64_t length, unsigned flags,
                      std::uint64_t base, std::uint64_t bytes);

// The location that cuMemAdvise and cuMemPrefetchAsync name by a device number.
CUmemLocation location_of(CUdevice device);

}  // namespace flyt::cuda
