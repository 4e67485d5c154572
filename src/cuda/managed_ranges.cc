// ManagedRanges: what a program has said about where its managed memory should be, and what CUDA
// answers when it asks.
#include "cuda/managed_ranges.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "cuda/default_stream.h"

namespace flyt::cuda {
namespace {

constexpr std::uint64_t down(std::uint64_t address) {
  return address / ManagedRanges::kPageBytes * ManagedRanges::kPageBytes;
}
constexpr std::uint64_t up(std::uint64_t address) {
  return down(address + ManagedRanges::kPageBytes - 1);
}

CUresult tell(void* data, int value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

// Whether the machine has this NUMA node. The first one it has always.
bool is_node(int id) {
  if (id <= 0) return id == 0;
  return access(("/sys/devices/system/node/node" + std::to_string(id)).c_str(), F_OK) == 0;
}

bool names_accessor(CUmem_advise advice) {
  return advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

bool names_place(CUmem_advise advice) {
  return names_accessor(advice) || advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
}

bool of_node(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

}  // namespace

CUmemLocation location_of(CUdevice device) {
  return device == CU_DEVICE_CPU ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

bool BatchLocations::valid() const {
  if (locations_ == nullptr || indices_ == nullptr || count_ == 0 || count_ > operations_ ||
      indices_[0] != 0) {
    return false;
  }
  for (std::size_t i = 1; i < count_; ++i) {
    if (indices_[i] <= indices_[i - 1] || indices_[i] >= operations_) return false;
  }
  return true;
}

const CUmemLocation& BatchLocations::of(std::size_t operation) const {
  const std::size_t* behind = std::upper_bound(indices_, indices_ + count_, operation);
  return locations_[behind - indices_ - 1];
}

CUresult check_attach(CUstream stream, std::uint64_t address, std::uint64_t length, unsigned flags,
                      std::uint64_t base, std::uint64_t bytes) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
      flags != CU_MEM_ATTACH_SINGLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Single attachment is to a stream that has a name.
  const bool single = flags == CU_MEM_ATTACH_SINGLE;
  if (single && stream == nullptr && !PerThreadDefaultStream::active()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (address != base || (length != 0 && length != bytes)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

void ManagedRanges::add(std::uint64_t base, std::uint64_t bytes) {
  const Lock lock(mutex_);
  Facts facts;
  facts.bytes = up(base + bytes) - down(base);
  parts_.emplace(down(base), facts);
}

void ManagedRanges::remove(std::uint64_t base, std::uint64_t bytes) {
  const Lock lock(mutex_);
  parts_.erase(parts_.lower_bound(down(base)), parts_.lower_bound(up(base + bytes)));
}

ManagedRanges::Place ManagedRanges::place_of(const CUmemLocation& location) {
  return {location.type, location.type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU : location.id};
}

CUresult ManagedRanges::check_location(const CUmemLocation& location) const {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return location.id >= 0 && location.id < devices_ ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return is_node(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Advice of any kind has to name a place that there could be, and some a place that there is.
CUresult ManagedRanges::check_advice(CUmem_advise advice, const CUmemLocation& location) const {
  if (location.type < CU_MEM_LOCATION_TYPE_DEVICE ||
      location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (names_accessor(advice) && of_node(location)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult bad = names_place(advice) ? check_location(location) : CUDA_SUCCESS;
  return bad == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ManagedRanges::Parts::const_iterator ManagedRanges::around(std::uint64_t address) const {
  const auto after = parts_.upper_bound(address);
  if (after == parts_.begin()) return parts_.end();
  const auto at = std::prev(after);
  return address - at->first < at->second.bytes ? at : parts_.end();
}

bool ManagedRanges::covers(std::uint64_t address, std::uint64_t bytes) const {
  if (bytes == 0 || address + bytes < address) return false;
  const std::uint64_t end = address + bytes;
  while (address < end) {
    const auto part = around(address);
    if (part == parts_.end()) return false;
    address = part->first + part->second.bytes;
  }
  return true;
}

void ManagedRanges::split(std::uint64_t address) {
  const auto found = around(address);
  if (found == parts_.end() || found->first == address) return;
  Facts& before = parts_[found->first];
  Facts behind = before;
  before.bytes = address - found->first;
  behind.bytes -= before.bytes;
  parts_.emplace(address, behind);
}

template <class Change>
void ManagedRanges::change(std::uint64_t address, std::uint64_t bytes, Change&& change) {
  const std::uint64_t begin = down(address);
  const std::uint64_t end = up(address + bytes);
  split(begin);
  split(end);
  for (auto at = parts_.lower_bound(begin); at != parts_.end() && at->first < end; ++at) {
    change(at->second);
  }
}

CUresult ManagedRanges::advise(std::uint64_t address, std::uint64_t bytes, CUmem_advise advice,
                               const CUmemLocation& location) {
  if (const CUresult bad = check_advice(advice, location); bad != CUDA_SUCCESS) return bad;
  const Lock lock(mutex_);
  // What a node is advised is heeded for memory that GPU and host address alike: there is none.
  if (of_node(location)) {
    return advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  }
  if (!covers(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool set = advice == CU_MEM_ADVISE_SET_ACCESSED_BY;
  const auto device = std::uint64_t{1} << (location.id & 63);
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      change(address, bytes, [](Facts& facts) { facts.read_mostly = true; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      change(address, bytes, [](Facts& facts) { facts.read_mostly = false; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      change(address, bytes, [&](Facts& facts) { facts.preferred = place_of(location); });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      change(address, bytes, [](Facts& facts) { facts.preferred = {}; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      change(address, bytes, [&](Facts& facts) {
        if (location.type == CU_MEM_LOCATION_TYPE_HOST) {
          facts.accessed_by_host = set;
        } else {
          facts.accessed_by = set ? facts.accessed_by | device : facts.accessed_by & ~device;
        }
      });
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult ManagedRanges::advise_for(CUdevice device, std::uint64_t address, std::uint64_t bytes,
                                   CUmem_advise advice) {
  const CUmemLocation location = location_of(device);
  const CUresult bad = names_place(advice) ? check_location(location) : CUDA_SUCCESS;
  // Advice that looks at no place takes any.
  return bad == CUDA_SUCCESS ? advise(address, bytes, advice, location) : bad;
}

CUresult ManagedRanges::check_prefetch(std::uint64_t address, std::uint64_t bytes,
                                       const CUmemLocation& location) const {
  const CUresult bad = check(address, bytes);
  return bad == CUDA_SUCCESS ? check_location(location) : bad;
}

CUresult ManagedRanges::check_prefetch_of_batch(std::uint64_t address, std::uint64_t bytes,
                                                const CUmemLocation& location) const {
  const CUresult bad = check_prefetch(address, bytes, location);
  return bad == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : bad;
}

CUresult ManagedRanges::check(std::uint64_t address, std::uint64_t bytes) const {
  const Lock lock(mutex_);
  return covers(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult ManagedRanges::prefetch(std::uint64_t address, std::uint64_t bytes,
                                 const CUmemLocation& location) {
  if (const CUresult bad = check_prefetch(address, bytes, location); bad != CUDA_SUCCESS) {
    return bad;
  }
  const Lock lock(mutex_);
  change(address, bytes, [&](Facts& facts) { facts.prefetched = place_of(location); });
  return CUDA_SUCCESS;
}

ManagedRanges::Place ManagedRanges::common(std::uint64_t address, std::uint64_t bytes,
                                           Place Facts::*which) const {
  auto at = around(address);
  const Place first = at->second.*which;
  for (; at != parts_.end() && at->first < address + bytes; ++at) {
    if (!(at->second.*which == first)) return {};
  }
  return first;
}

// Devices that all parts name, and behind the last one CU_DEVICE_INVALID.
CUresult ManagedRanges::accessors(void* data, std::size_t size, std::uint64_t address,
                                  std::uint64_t bytes) const {
  if (size == 0 || size % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t devices = ~std::uint64_t{0};
  bool host = true;
  for (auto at = around(address); at != parts_.end() && at->first < address + bytes; ++at) {
    devices &= at->second.accessed_by;
    host = host && at->second.accessed_by_host;
  }
  std::vector<int> list;
  for (int device = 0; device < devices_; ++device) {
    if ((devices >> (device & 63) & 1) != 0) list.push_back(device);
  }
  if (host) list.push_back(CU_DEVICE_CPU);
  list.resize(size / sizeof(int), CU_DEVICE_INVALID);
  std::memcpy(data, list.data(), size);
  return CUDA_SUCCESS;
}

CUresult ManagedRanges::attribute(void* data, std::size_t size, CUmem_range_attribute attribute,
                                  std::uint64_t address, std::uint64_t bytes) const {
  const Lock lock(mutex_);
  if (data == nullptr || !covers(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    return accessors(data, size, address, bytes);
  }
  if (size != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
  const bool prefetch = attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION ||
                        attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE ||
                        attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID;
  const Place place = common(address, bytes, prefetch ? &Facts::prefetched : &Facts::preferred);
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: {
      bool all = true;
      for (auto at = around(address); at != parts_.end() && at->first < address + bytes; ++at) {
        all = all && at->second.read_mostly;
      }
      return tell(data, all ? 1 : 0);
    }
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      if (place.type == CU_MEM_LOCATION_TYPE_DEVICE) return tell(data, place.id);
      return tell(data, place.type == Place{}.type ? CU_DEVICE_INVALID : CU_DEVICE_CPU);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return tell(data, static_cast<int>(place.type));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return tell(data, place.id);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::cuda
