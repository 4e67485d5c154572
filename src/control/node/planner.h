// Planner: what a lease may get of this machine's GPUs, or why it gets nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "control/node/group_map.h"
#include "control/node/lease.h"

namespace flyt::node {

inline constexpr std::size_t kNameBytesMax = 64;
inline constexpr std::size_t kLabelsMax = 64;
inline constexpr std::size_t kLabelBytesMax = 256;
inline constexpr std::uint64_t kMemoryQuotaMin = 16ull << 20;
inline constexpr std::int32_t kPriorityMax = 1000;

struct PlannerLimits {
  std::uint64_t overhead_per_lease = 0;  // Device memory of contexts, beside the quota.
  std::uint32_t leases_max = 64;
};

// The sum of a GPU's quotas and overheads never exceeds its memory. No group has two leases, or,
// with more than 100 percent, no more groups are held together than that many percent. Pure:
// decides from its arguments alone. kInvalid: could never be granted; kLimit: not now.
class Planner {
 public:
  Planner(std::vector<Gpu> gpus, PlannerLimits limits) : gpus_(std::move(gpus)), limits_(limits) {}

  // `now` in seconds since 1970. Without a wished GPU the first one with room is taken; never one
  // that has failed.
  Result<Grant> place(const LeaseRequest& request, std::span<const Lease> leases, std::int64_t now,
                      const GpuFailures& failed = {}) const;
  // Stays on its GPU and keeps as many of its groups as it can: all if it asks for as many
  // multiprocessors as before.
  Result<Grant> resize(const Lease& lease, const ResizeRequest& request,
                       std::span<const Lease> leases) const;

  // The same, in groups side by side; kLimit where they are already, or there are none free.
  Result<Grant> gather(const Lease& lease, std::span<const Lease> leases) const;

  const std::vector<Gpu>& gpus() const { return gpus_; }
  const Gpu* find(std::uint32_t index) const;
  const PlannerLimits& limits() const { return limits_; }
  // Of one GPU: what leases hold, quotas and overheads apart.
  struct Held {
    std::uint64_t quota_bytes = 0;
    std::uint64_t overhead_bytes = 0;
  };
  static Held held(std::uint32_t gpu, std::span<const Lease> leases);
  // As `without`, which is not counted, may have them.
  static GroupMap map_of(const Gpu& gpu, std::span<const Lease> leases, const Lease* without);

 private:
  Result<Grant> fit(const Gpu& gpu, const LeaseRequest& request, std::span<const Lease> leases,
                    const GpuFailures& failed) const;
  std::uint64_t memory_free(const Gpu& gpu, std::span<const Lease> leases) const;
  Status check_size(const Gpu& gpu, std::uint32_t sms, std::uint64_t memory) const;

  std::vector<Gpu> gpus_;
  PlannerLimits limits_;
};

// Names and labels have letters, digits, '-', '_', '.', and in the middle '/'.
Status check_name(std::string_view name);
Status check_labels(const Labels& labels);

}  // namespace flyt::node
