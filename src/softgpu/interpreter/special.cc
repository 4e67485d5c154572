// Special registers: PTX ISA, "Special Registers".
#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/wall_clock.h"
#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/lanes.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

std::uint64_t now_ns() { return static_cast<std::uint64_t>(system_clock().now().ns); }

// Nanoseconds since 1970, which programs take for the time of day. It does not jump.
std::uint64_t global_timer_ns() {
  static const std::uint64_t start =
      static_cast<std::uint64_t>(unix_milliseconds()) * 1'000'000 - now_ns();
  return start + now_ns();
}

std::uint32_t product(const std::array<std::uint32_t, 3>& of) { return of[0] * of[1] * of[2]; }

// %ctaid of a cluster, %clusterid, and what else follows from both.
std::uint64_t of_cluster(const Block& block, std::uint32_t name) {
  const Launch& launch = block.state().launch;
  const auto& size = launch.cluster;
  const auto& index = block.index();
  switch (name) {
    case "%cluster_ctaid.x"_n:
      return index[0] % size[0];
    case "%cluster_ctaid.y"_n:
      return index[1] % size[1];
    case "%cluster_ctaid.z"_n:
      return index[2] % size[2];
    case "%cluster_nctaid.x"_n:
      return size[0];
    case "%cluster_nctaid.y"_n:
      return size[1];
    case "%cluster_nctaid.z"_n:
      return size[2];
    case "%cluster_ctarank"_n:
      return block.rank();
    case "%cluster_nctarank"_n:
      return product(size);
    case "%clusterid.x"_n:
      return index[0] / size[0];
    case "%clusterid.y"_n:
      return index[1] / size[1];
    case "%clusterid.z"_n:
      return index[2] / size[2];
    case "%nclusterid.x"_n:
      return launch.grid[0] / size[0];
    case "%nclusterid.y"_n:
      return launch.grid[1] / size[1];
    case "%nclusterid.z"_n:
      return launch.grid[2] / size[2];
    default:
      return launch.in_clusters ? 1 : 0;  // %is_explicit_cluster
  }
}

std::uint64_t of_grid(const Block& block, std::uint32_t name) {
  const LaunchState& state = block.state();
  const Launch& launch = state.launch;
  const auto& index = block.index();
  const std::uint64_t linear = index[0] + std::uint64_t{launch.grid[0]} *
                                              (index[1] + std::uint64_t{launch.grid[1]} * index[2]);
  switch (name) {
    case "%gridid"_n:
      return launch.grid_id;
    case "%nsmid"_n:
      return launch.sm_count;
    case "%envreg1"_n:
      return launch.workspace >> 32;
    case "%envreg2"_n:
      return launch.workspace & 0xffffffff;
    case "%smid"_n:
      return launch.sms == nullptr ? linear % launch.sm_count
                                   : (*launch.sms)[linear % launch.sms->size()];
    case "%dynamic_smem_size"_n:
      return launch.dynamic_shared_bytes;
    case "%total_smem_size"_n:
    case "%aggr_smem_size"_n:
      return state.static_shared + launch.dynamic_shared_bytes;
    case "%reserved_smem_offset_begin"_n:
    case "%reserved_smem_offset_1"_n:
    case "%current_graph_exec"_n:
      return 0;
    case "%reserved_smem_offset_0"_n:
      return kReservedSharedBytes / 2;
    case "%reserved_smem_offset_end"_n:
    case "%reserved_smem_offset_cap"_n:
      return kReservedSharedBytes;
    case "%globaltimer"_n:
      return global_timer_ns();
    case "%globaltimer_lo"_n:
      return global_timer_ns() & 0xffffffff;
    case "%globaltimer_hi"_n:
      return global_timer_ns() >> 32;
    // Cycles of a clock of 1 GHz.
    case "%clock"_n:
    case "%clock64"_n:
      return now_ns();
    case "%clock_hi"_n:
      return now_ns() >> 32;
    default:
      return 0;
  }
}

// Values that are equal in all threads of a warp.
std::uint64_t uniform(const Warp& warp, const Block& block, std::uint32_t name) {
  const LaunchState& state = block.state();
  const Launch& launch = state.launch;
  switch (name) {
    case "%ntid.x"_n:
      return launch.block[0];
    case "%ntid.y"_n:
      return launch.block[1];
    case "%ntid.z"_n:
      return launch.block[2];
    case "%ctaid.x"_n:
      return block.index()[0];
    case "%ctaid.y"_n:
      return block.index()[1];
    case "%ctaid.z"_n:
      return block.index()[2];
    case "%nctaid.x"_n:
      return launch.grid[0];
    case "%nctaid.y"_n:
      return launch.grid[1];
    case "%nctaid.z"_n:
      return launch.grid[2];
    case "%warpid"_n:
      return warp.index();
    case "%nwarpid"_n:
      return state.warps;
    case "%cluster_ctaid.x"_n:
    case "%cluster_ctaid.y"_n:
    case "%cluster_ctaid.z"_n:
    case "%cluster_nctaid.x"_n:
    case "%cluster_nctaid.y"_n:
    case "%cluster_nctaid.z"_n:
    case "%cluster_ctarank"_n:
    case "%cluster_nctarank"_n:
    case "%clusterid.x"_n:
    case "%clusterid.y"_n:
    case "%clusterid.z"_n:
    case "%nclusterid.x"_n:
    case "%nclusterid.y"_n:
    case "%nclusterid.z"_n:
    case "%is_explicit_cluster"_n:
      return of_cluster(block, name);
    default:
      return of_grid(block, name);
  }
}

std::uint32_t of_lane(std::uint32_t name, unsigned lane) {
  const std::uint32_t bit = 1u << lane;
  switch (name) {
    case "%laneid"_n:
      return lane;
    case "%lanemask_eq"_n:
      return bit;
    case "%lanemask_lt"_n:
      return bit - 1;
    case "%lanemask_le"_n:
      return bit | (bit - 1);
    case "%lanemask_gt"_n:
      return ~(bit | (bit - 1));
    default:
      return ~(bit - 1);  // %lanemask_ge
  }
}

constexpr std::uint32_t kLaneNames[] = {"%laneid"_n,      "%lanemask_eq"_n, "%lanemask_lt"_n,
                                        "%lanemask_le"_n, "%lanemask_gt"_n, "%lanemask_ge"_n};
constexpr std::uint32_t kThreadNames[] = {"%tid.x"_n, "%tid.y"_n, "%tid.z"_n};
constexpr std::uint32_t kNames32[] = {
    "%ntid.x"_n,
    "%ntid.y"_n,
    "%ntid.z"_n,
    "%ctaid.x"_n,
    "%ctaid.y"_n,
    "%ctaid.z"_n,
    "%nctaid.x"_n,
    "%nctaid.y"_n,
    "%nctaid.z"_n,
    "%warpid"_n,
    "%nwarpid"_n,
    "%smid"_n,
    "%nsmid"_n,
    "%cluster_ctaid.x"_n,
    "%cluster_ctaid.y"_n,
    "%cluster_ctaid.z"_n,
    "%cluster_nctaid.x"_n,
    "%cluster_nctaid.y"_n,
    "%cluster_nctaid.z"_n,
    "%cluster_ctarank"_n,
    "%cluster_nctarank"_n,
    "%clusterid.x"_n,
    "%clusterid.y"_n,
    "%clusterid.z"_n,
    "%nclusterid.x"_n,
    "%nclusterid.y"_n,
    "%nclusterid.z"_n,
    "%is_explicit_cluster"_n,
    "%dynamic_smem_size"_n,
    "%total_smem_size"_n,
    "%aggr_smem_size"_n,
    "%reserved_smem_offset_begin"_n,
    "%reserved_smem_offset_end"_n,
    "%reserved_smem_offset_cap"_n,
    "%reserved_smem_offset_0"_n,
    "%reserved_smem_offset_1"_n,
    "%globaltimer_lo"_n,
    "%globaltimer_hi"_n,
    "%clock"_n,
    "%clock_hi"_n,
};
constexpr std::uint32_t kNames64[] = {"%gridid"_n, "%globaltimer"_n, "%clock64"_n,
                                      "%current_graph_exec"_n};

// A driver may put anything there: all but two are zero.
constexpr auto kEnvironmentNames = [] {
  std::array<std::uint32_t, 32> names{};
  char text[] = "%envreg00";
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool two_digits = i >= 10;
    if (two_digits) text[7] = static_cast<char>('0' + i / 10);
    text[two_digits ? 8 : 7] = static_cast<char>('0' + i % 10);
    names[i] = hash_of({text, std::size_t{two_digits ? 9u : 8u}});
  }
  return names;
}();

template <std::size_t N>
bool contains(const std::uint32_t (&names)[N], std::uint32_t name) {
  for (const std::uint32_t each : names) {
    if (each == name) return true;
  }
  return false;
}

}  // namespace

bool is_fourth_component(std::uint32_t name) {
  switch (name) {
    case "%tid.w"_n:
    case "%ntid.w"_n:
    case "%ctaid.w"_n:
    case "%nctaid.w"_n:
    case "%clusterid.w"_n:
    case "%nclusterid.w"_n:
    case "%cluster_ctaid.w"_n:
    case "%cluster_nctaid.w"_n:
      return true;
  }
  return false;
}

bool special_known(std::uint32_t name, unsigned& bytes) {
  bytes = contains(kNames64, name) ? 8 : 4;
  return bytes == 8 || contains(kNames32, name) || contains(kLaneNames, name) ||
         contains(kThreadNames, name) ||
         std::find(kEnvironmentNames.begin(), kEnvironmentNames.end(), name) !=
             kEnvironmentNames.end();
}

Flow read_special(Warp& warp, const Step& step, Mask lanes) {
  const std::uint32_t name = step.extra;
  std::byte* d = warp.row(step.d);
  const bool wide = step.value == 8;
  const auto store = [&](unsigned lane, std::uint64_t value) {
    if (wide) return put<std::uint64_t>(d, lane, value);
    put<std::uint32_t>(d, lane, static_cast<std::uint32_t>(value));
  };
  if (contains(kThreadNames, name)) {
    const auto axis = static_cast<unsigned>(name == "%tid.y"_n ? 1 : name == "%tid.z"_n ? 2 : 0);
    if (!wide && lanes == kAllLanes) {
      std::memcpy(d, warp.thread_axis(axis), kRow32Bytes);
      return Flow::kNext;
    }
    for_lanes(lanes, [&](unsigned lane) { store(lane, warp.thread_axis(axis)[lane]); });
  } else if (contains(kLaneNames, name)) {
    for_lanes(lanes, [&](unsigned lane) { store(lane, of_lane(name, lane)); });
  } else {
    const std::uint64_t value = uniform(warp, warp.block(), name);
    if (!wide) {
      each_lane<std::uint32_t>(d, lanes,
                               [&](unsigned) { return static_cast<std::uint32_t>(value); });
    } else {
      each_lane<std::uint64_t>(d, lanes, [&](unsigned) { return value; });
    }
    // Whoever looks at the time may be waiting for it to pass.
    if (name == "%globaltimer"_n || name == "%clock64"_n || name == "%clock"_n) warp.polled();
  }
  return Flow::kNext;
}

}  // namespace flyt::ptx
