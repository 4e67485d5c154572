// What placement decides from: nodes and their GPUs, leases on them, requests for more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flyt::placement {

using Labels = std::map<std::string, std::string>;

inline constexpr std::size_t kGpusOfNodeMax = 64;
inline constexpr std::uint32_t kSmPercentMax = 1000;
inline constexpr std::int32_t kRequestPriorityMax = 1000;
inline constexpr std::size_t kRequestLabelsMax = 64;
inline constexpr std::size_t kRequestTextBytesMax = 256;  // Of an id, a label, a name.
inline constexpr std::size_t kAvoidedNodesMax = 64;

// May leases come to a node?
enum class NodeState : std::uint8_t {
  kReady,
  kCordoned,  // No new ones; those there stay.
  kDraining,  // No new ones; those there are to go.
  kLost,      // It does not answer.
};
std::string_view to_string(NodeState state);

// How leases of one GPU share it, as the node manager has it.
enum class GpuMode : std::uint8_t { kIsolated, kShared };
std::string_view to_string(GpuMode mode);

enum class Policy : std::uint8_t {
  kPack,       // Where least is left over: nodes and GPUs in use before empty ones.
  kSpread,     // Where the smallest part is in use: of the node, then of the GPU.
  kHostFirst,  // On the requester's own host; where that has no room, as kPack.
};
std::string_view to_string(Policy policy);
std::optional<Policy> policy_of(std::string_view text);

struct GpuFacts {
  std::uint32_t index = 0;
  std::string kind;  // Its name, such as "NVIDIA H200".
  GpuMode mode = GpuMode::kIsolated;
  // Multiprocessors of each group: of one size, but for the last, which may be what the chip had
  // left. That one is granted like the others (SmCut); or, if not, only who takes all gets it.
  std::vector<std::uint32_t> groups;
  bool rest_is_group = false;
  std::uint64_t memory_bytes = 0;
  std::uint64_t reserve_bytes = 0;  // Never given to leases.
  // So many percent of the groups are given out. Above 100 groups have several leases, and only
  // requests that agree (`share_sms`) come here; memory is never given out twice.
  std::uint32_t sm_percent = 100;
  bool usable = true;  // False: broken, or it is not there any more.
};

struct NodeFacts {
  std::string name;
  std::string host;        // The machine that it is, for kHostFirst,
  bool host_only = false;  // and from which alone its leases can be reached.
  Labels labels;
  NodeState state = NodeState::kReady;
  std::uint32_t leases_max = 64;
  std::uint64_t overhead_per_lease = 0;  // Device memory of contexts, beside the quota.
  std::vector<GpuFacts> gpus;
};

// Keeps leases apart: two whose labels have the same value under `key` are never on one node, or
// one GPU. It holds whichever of them asks for it, and whichever came first.
struct Apart {
  enum class From : std::uint8_t { kNode, kGpu };
  std::string key;
  From from = From::kNode;
};

struct Request {
  std::string id;  // The lease's, unique.
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  std::int32_t priority = 0;  // Higher goes first.
  Policy policy = Policy::kPack;
  std::string host;                  // The requester's machine.
  std::optional<std::string> reach;  // The machine whose sockets it reaches; missing: anybody's.
  std::optional<GpuMode> mode;       // Any if missing; here and below.
  std::string kind;                  // Exactly this kind of GPU.
  std::string node;                  // This node alone,
  std::optional<std::uint32_t> gpu;  // and there this GPU.
  std::vector<std::string> avoid;    // Not these nodes: they have just refused.
  Labels require;                    // Labels that the node must have.
  Labels labels;
  std::vector<Apart> apart;
  bool share_sms = false;  // May have its multiprocessors together with others.
};

// A lease as it is on a node.
struct HeldLease {
  std::string id;
  std::string node;
  std::uint32_t gpu = 0;
  std::uint32_t sms = 0;  // As granted: whole groups.
  std::uint64_t memory_bytes = 0;
  std::uint64_t overhead_bytes = 0;
  // Whether the last group, of what the chip had left, is among them. None: nobody has said, and it
  // is taken to be what an empty GPU would give.
  std::optional<bool> rest = {};
  Labels labels = {};
  std::vector<Apart> apart = {};
  std::string why = {};  // What placement said, for people; may be empty.
};

}  // namespace flyt::placement
