// Lease: a virtual GPU for one tenant, and what it is cut from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flyt::node {

// Of a machine, and of a GPU; as many groups as its servers can name (api/admin).
inline constexpr std::uint32_t kGpusMax = 256;
inline constexpr std::uint32_t kGroupsMax = 256;
inline constexpr std::uint32_t kSmsMax = 65536;

// Who shares a GPU, and how (api/control/node.proto).
enum class Mode : std::uint8_t { kIsolated, kShared };
std::string_view to_string(Mode mode);
std::optional<Mode> mode_of(std::string_view text);

struct Gpu {
  std::uint32_t index = 0;
  std::string name;
  std::string uuid;
  Mode mode = Mode::kIsolated;
  std::vector<std::uint32_t> groups;  // Multiprocessors of each group.
  // The last group is what the chip has left over, and is granted like another (SmCut). False: if
  // it is odd, whoever has all groups has it.
  bool rest_is_group = false;
  std::uint64_t memory_bytes = 0;
  std::uint64_t reserve_bytes = 0;  // Never given to leases.
  bool divisible = false;           // Programs can be confined to groups.
  std::uint32_t sm_percent = 100;   // So many of its groups are given out.

  std::uint32_t sms() const {
    std::uint32_t sum = 0;
    for (const std::uint32_t group : groups) sum += group;
    return sum;
  }
};

// Why GPUs are of no use any more, by their indices.
using GpuFailures = std::map<std::uint32_t, std::string>;

// A process, so that a later one with the same number is not taken for it.
struct ProcessId {
  std::int32_t pid = 0;     // 0: none.
  std::uint64_t start = 0;  // Clock ticks after the machine's start.
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

enum class LeaseState : std::uint8_t {
  kStarting,
  kRunning,
  kRestarting,  // Its server died; another is on its way.
  kLost,        // Its GPU is not there, or has failed.
  kEnding,
};
std::string_view to_string(LeaseState state);

using Labels = std::map<std::string, std::string>;

struct LeaseRequest {
  std::string name;
  std::optional<std::uint32_t> gpu;
  std::optional<Mode> mode;
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  std::int32_t priority = 0;
  std::int64_t expires_at = 0;  // Seconds since 1970; 0: never.
  Labels labels;
};

struct ResizeRequest {
  std::optional<std::uint32_t> sms;
  std::optional<std::uint64_t> memory_bytes;
  bool when_free = false;  // Less memory than is used holds once that much is free.
};

// What a lease holds of a GPU.
struct Grant {
  std::uint32_t gpu = 0;
  Mode mode = Mode::kIsolated;
  std::vector<std::uint32_t> groups;  // Ascending.
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t overhead_bytes = 0;
};

struct Lease {
  std::string id;
  std::string name;
  std::string gpu_uuid;
  Grant grant;
  std::uint32_t sms_asked = 0;
  std::int32_t priority = 0;
  std::int64_t created_at = 0;
  std::int64_t expires_at = 0;
  Labels labels;
  std::uint16_t port = 0;  // TCP, for clients; 0: none.
  ProcessId server;
  std::uint32_t restarts = 0;
  // Its quota as soon as no more is used; until then nobody else gets what it gives up. 0: none.
  std::uint64_t memory_pending = 0;
  LeaseState state = LeaseState::kStarting;  // Not kept on disk, nor what follows.
  std::string state_reason;
  bool confined = false;   // Its programs run on its groups alone.
  bool takes_rest = true;  // False: its server is older than groups made of what is left over.
};

}  // namespace flyt::node
