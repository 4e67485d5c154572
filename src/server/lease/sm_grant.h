// SmGrant: the multiprocessors of a lease, as groups that the chip can give.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/sm_cut.h"
#include "driver/table.h"

namespace flyt::server {

inline constexpr std::size_t kSmGroupsMax = 256;

// What a chip has.
struct SmFacts {
  std::uint32_t all = 0;
  std::uint32_t group = 0;   // Multiprocessors of one group; 0: the GPU cannot be divided.
  std::uint32_t groups = 0;  // Of that size. With the last one at most kSmGroupsMax.
  std::uint32_t last = 0;    // Multiprocessors of one more, made of what is left over; 0: none.

  std::uint32_t numbers() const { return groups + (last != 0 ? 1 : 0); }
  // With what is left over and makes no group.
  SmCut cut() const;
  friend bool operator==(const SmFacts&, const SmFacts&) = default;
};

struct SmGrant {
  std::uint32_t asked = 0;  // 0: all.
  std::uint32_t granted = 0;
  // Numbers of groups; they mean the same multiprocessors in every process. Empty: the whole GPU.
  std::vector<std::uint32_t> groups;

  bool confined() const { return !groups.empty(); }
  friend bool operator==(const SmGrant&, const SmGrant&) = default;
};

SmFacts sm_facts(const driver::Table& driver, CUdevice device);

// The named groups, or without names those whose sum is the least that has `sms` multiprocessors,
// the first ones. What takes all there are is the whole GPU. An error for more than there is,
// groups that there are not, the last group alone (SmCut), and GPUs that cannot be divided.
Result<SmGrant> grant_sms(const SmFacts& facts, std::uint32_t sms,
                          std::vector<std::uint32_t> groups);

// A green context of a device's primary one with the groups, and what it is converted to.
struct Confined {
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
};
CUresult confine(const driver::Table& driver, CUdevice device, const SmGrant& grant,
                 Confined& confined);
// The same in two steps. A description has no end.
CUresult describe_groups(const driver::Table& driver, CUdevice device,
                         const std::vector<std::uint32_t>& groups, CUdevResourceDesc& description);
CUresult confine(const driver::Table& driver, CUdevice device, CUdevResourceDesc description,
                 Confined& confined);

}  // namespace flyt::server
