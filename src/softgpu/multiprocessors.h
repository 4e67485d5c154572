// Multiprocessors: how those of a device stand together, and how they are divided into groups.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/fatbin.h"

namespace flyt::softgpu {

// Some multiprocessors of a device, by their numbers, ascending.
using SmSet = std::vector<std::uint16_t>;

// Two multiprocessors are a TPC, up to nine of these a GPC, as on an H200. Safe from any thread.
class Multiprocessors {
 public:
  Multiprocessors(unsigned count, cuda::ComputeCapability capability);

  const SmSet& all() const { return all_; }
  unsigned tpcs() const { return static_cast<unsigned>(gpc_of_tpc_.size()); }
  unsigned gpc_of_tpc(unsigned tpc) const { return gpc_of_tpc_[tpc]; }

  // What groups are made of: at least `least` multiprocessors, in steps of `step` that stand
  // together in one GPC.
  struct Grain {
    unsigned least = 1;
    unsigned step = 1;
  };
  Grain grain() const { return grain_; }
  // The smallest: whole TPCs where there are any.
  Grain fine_grain() const;
  // Such that the largest clusters fit a group.
  Grain cluster_grain() const;

  // As many groups of `size` as `from` has room for; `size` is a multiple of the grain's step.
  std::vector<SmSet> split(const SmSet& from, unsigned size, Grain grain) const;
  static SmSet without(const SmSet& from, const SmSet& taken);
  static SmSet united(const SmSet& one, const SmSet& other);

  // A number by which programs may name a set, the same for equal sets; and the set again, null
  // for a number that is none's.
  std::uint32_t number_of(const SmSet& set) EXCLUDES(mutex_);
  std::shared_ptr<const SmSet> find(std::uint32_t number) const EXCLUDES(mutex_);

 private:
  unsigned gpc_of(std::uint16_t sm) const;

  SmSet all_;
  std::vector<std::uint16_t> gpc_of_tpc_;
  Grain grain_;
  mutable Mutex mutex_;
  std::map<SmSet, std::uint32_t> numbers_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const SmSet>> sets_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
