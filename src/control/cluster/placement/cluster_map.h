// ClusterMap: what of every GPU is given away, and where a request fits best.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "control/cluster/placement/facts.h"

namespace flyt::placement {

// Who asks, in the order in which requests are served: a higher priority first, then who came
// first.
struct Turn {
  std::int32_t priority = 0;
  std::uint64_t sequence = 0;  // From 1.
  bool before(const Turn& other) const {
    return priority != other.priority ? priority > other.priority : sequence < other.sequence;
  }
  friend bool operator==(const Turn&, const Turn&) = default;
};

// What a node, or the nearest of its GPUs, says to a request. The order is that of nearness: the
// last is as good as room.
enum class Verdict : std::uint8_t {
  kLost,
  kDraining,
  kCordoned,
  kAvoided,
  kOtherNode,  // Another one is wished.
  kOtherLabels,
  kOutOfReach,  // Its leases have no address for the requester's machine.
  kNoGpu,       // It has none, or not the one that is wished.
  kBroken,      // The GPU is not usable.
  kOtherKind,
  kOtherMode,
  kOversubscribed,  // Its groups have several leases, and the request does not agree.
  kTooSmall,        // Even if it were empty.
  kApart,           // A lease is there from which this one is kept apart.
  kLeasesFull,      // As many leases as the node takes.
  kNoMemory,
  kNoGroups,
  kNeither,  // Too little memory and too few groups.
  kKept,     // It has room, and is kept for somebody who waits longer.
  kRoom,
};

// What one GPU says, with the figures.
struct Judgement {
  Verdict verdict = Verdict::kNoGpu;
  std::uint32_t gpu = 0;
  std::uint32_t groups_needed = 0;
  std::uint32_t groups_free = 0;
  std::uint64_t memory_needed = 0;  // With what contexts need.
  std::uint64_t memory_free = 0;
};

// Where a request fits best.
struct Fit {
  std::uint32_t node = 0;
  std::uint32_t gpu = 0;  // Its index on the node.
  std::uint32_t sms = 0;  // What it would get: whole groups.
  std::uint32_t groups = 0;
  bool rest = false;  // The last of them is what the chip had left.
  std::uint64_t overhead_bytes = 0;
  std::uint32_t candidates = 0;  // How many GPUs had room.
};

// Memory is never given out beyond what there is, nor groups beyond what the GPU allows; what
// nodes hold already is taken as it is, though, and if that is too much nothing more goes there.
// Answers depend on nodes, leases and the request alone, not on how the state came about. Holds no
// clock and no threads; not thread-safe.
class ClusterMap {
 public:
  using NodeId = std::uint32_t;  // Of a node that is there; given again when it was removed.

  ClusterMap();
  ~ClusterMap();
  ClusterMap(const ClusterMap&) = delete;
  ClusterMap& operator=(const ClusterMap&) = delete;

  // A new node, or a known one as it is now; its leases stay. kInvalid: the facts contradict
  // themselves.
  Status set_node(const NodeFacts& facts);
  // False if there is no such node; here and below.
  bool set_state(std::string_view node, NodeState state);
  // Its leases are released, too.
  bool remove_node(std::string_view node);

  // A lease that is there, or the same one as it is now. kNotFound: no such node.
  Status hold(const HeldLease& lease);
  bool release(std::string_view lease);

  // Whether a lease may become so large where it is; changes nothing. What it would get.
  Result<HeldLease> resized(std::string_view lease, std::uint32_t sms,
                            std::uint64_t memory_bytes) const;
  // A lease that is there, while it becomes `after`: it holds what it has and what it shall have.
  HeldLease changing(const HeldLease& after) const;

  // The best GPU for a request.
  std::optional<Fit> find(const Request& request, Turn turn) const;
  // The same among some nodes.
  std::optional<Fit> find_among(const Request& request, Turn turn,
                                std::span<const NodeId> nodes) const;
  HeldLease lease_of(const Request& request, const Fit& fit) const;

  // What a node says. Of several GPUs the nearest one's answer.
  Judgement judge(NodeId node, const Request& request, Turn turn) const;

  // Keeps a GPU for somebody: who comes after it in turn finds no room there. At most one each.
  struct Place {
    NodeId node = 0;
    std::uint32_t gpu = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  // The GPU where least is missing, of those that nobody has kept. None: there is none it fits.
  std::optional<Place> nearest(const Request& request, Turn turn) const;
  void keep(Place place, Turn turn);
  void give_up(Place place);
  // Whether the GPU could take the request if it were empty.
  bool could_use(Place place, const Request& request) const;
  // Whether any GPU could if it were empty and its node took leases.
  bool possible(const Request& request) const;
  // Where that is not possible: the nodes that it would be on if the requester reached them.
  std::vector<NodeId> out_of_reach(const Request& request) const;

  // Nodes that have become roomier since the last call, in order of their names.
  std::vector<NodeId> take_roomier();

  // In order of their names.
  std::vector<NodeId> nodes() const { return order_; }
  std::optional<NodeId> node(std::string_view name) const;
  const NodeFacts& facts(NodeId node) const;
  const HeldLease* lease(std::string_view id) const;
  std::vector<const HeldLease*> leases_on(NodeId node) const;
  std::size_t lease_count() const { return leases_.size(); }

  // What of a GPU is given away. Sums may exceed what there is if nodes say so.
  struct GpuUse {
    std::uint32_t index = 0;
    std::uint32_t groups = 0;  // As there are, but for an odd last one that is none.
    std::uint32_t groups_given = 0;
    std::uint32_t sms = 0;
    std::uint32_t sms_given = 0;
    std::uint64_t memory_bytes = 0;  // What leases may have.
    std::uint64_t memory_given = 0;  // Quotas and overheads.
    std::uint32_t leases = 0;
    bool kept = false;
  };
  std::vector<GpuUse> use(NodeId node) const;

 private:
  struct Gpu;
  struct Node;
  struct Query;
  class Search;
  struct Held {
    HeldLease lease;
    NodeId node = 0;
  };
  // What a search looks at first, side by side in memory: most requests do not fit most nodes of a
  // full cluster.
  struct Summary {
    bool ready = false;
    std::uint32_t sms_free = 0;  // Of the GPU that has most of them; the next of another, maybe.
    std::uint64_t memory_free = 0;
  };

  Node& at(NodeId node) { return *nodes_[node]; }
  const Node& at(NodeId node) const { return *nodes_[node]; }
  void add(Node& node, const HeldLease& lease);
  void count_again(Node& node);
  // Whether one of its GPUs could if it were empty and the node took leases.
  bool could_take(NodeId node, const Query& query) const;
  void summarise(NodeId node);
  void roomier(NodeId node);

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  template <class T>
  using ByName = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  std::vector<std::unique_ptr<Node>> nodes_;  // By NodeId; empty where one was removed.
  std::vector<Summary> summaries_;            // The same.
  std::vector<NodeId> order_;                 // By name.
  std::vector<NodeId> unused_;
  ByName<NodeId> ids_;
  ByName<Held> leases_;
  std::vector<NodeId> roomier_;
};

}  // namespace flyt::placement
