// Scheduler: places requests, lets the others wait, and says why.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/cluster/placement/cluster_map.h"
#include "control/cluster/placement/facts.h"

namespace flyt::placement {

struct SchedulerLimits {
  std::size_t waiting_max = 100000;
  // After so many others have been placed before it a request has a GPU kept for it.
  std::uint32_t overtaken_max = 16;
  std::size_t keeps_max = 64;  // At once.
};

// A request that was placed: its lease counts as held from now on. Where its node refuses it in
// the end, release() it and submit() it again, with that node in `avoid`.
struct Placement {
  HeldLease lease;
  Request request;
};

// Somebody who waits; what is kept on disk to wait on after a restart.
struct Waiting {
  Request request;
  std::uint64_t sequence = 0;
  std::uint32_t overtaken = 0;  // How many were placed before it that came after it in turn.
  std::optional<ClusterMap::Place> kept = {};  // Not after a restart.
};

struct NodeAnswer {
  std::string node;
  Judgement judgement;
  std::string text;  // One sentence without the node's name.
};

// Why somebody got what it got, or waits.
struct Explanation {
  enum class State : std::uint8_t { kPlaced, kWaiting, kUnknown };
  State state = State::kUnknown;
  std::string text;       // One line.
  std::size_t ahead = 0;  // Of those who wait.
  std::uint32_t overtaken = 0;
  bool possible = false;          // Some node could take it if it were empty.
  std::string kept;               // "node-3 GPU 1" if that is kept for it.
  std::vector<NodeAnswer> nodes;  // Of who waits: in order of names.
};

// The rules of the queue:
// - Of two that wait, the higher priority goes first; then who came first.
// - Who does not fit now does not hold up those behind it who do (they overtake it), until
//   `overtaken_max` of them have taken what it could have used. Then the GPU where least is
//   missing is kept for it: only who is before it in turn still gets anything there. So nobody
//   starves among equals as long as leases of that GPU end. A higher priority may hold up a lower
//   one for ever.
// - Nobody who has a lease loses it to a higher priority.
// Deterministic; holds no clock and no threads; not thread-safe.
class Scheduler {
 public:
  explicit Scheduler(SchedulerLimits limits = {}) : limits_(limits) {}

  // Nodes and leases are changed here; pump() places who waits for what has become free.
  ClusterMap& map() { return map_; }
  const ClusterMap& map() const { return map_; }

  // Puts a request into the queue; pump() places it. kInvalid: not a proper request; kDenied: the
  // id is taken; kLimit: too many wait.
  Status submit(const Request& request);
  // Somebody who waited before a restart.
  Status resume(const Waiting& waiting);
  // Places those who fit, in turn: after submit(), and whenever something has become free.
  std::vector<Placement> pump();
  // Whoever waits under this id does so no longer.
  bool cancel(std::string_view id);
  // Changes a held lease's size at its place. kLimit: no room; kNotFound.
  Result<HeldLease> resize(std::string_view lease, std::uint32_t sms, std::uint64_t memory_bytes);

  // In turn.
  std::vector<const Waiting*> queue() const { return {queue_.begin(), queue_.end()}; }
  const Waiting* waiting(std::string_view id) const;
  // How many are before it; none if it does not wait.
  std::optional<std::size_t> ahead(std::string_view id) const;
  Explanation explain(std::string_view id) const;
  // What would become of a request now; changes nothing.
  Explanation what_if(const Request& request) const;

 private:
  Turn turn_of(const Waiting& waiting) const {
    return {waiting.request.priority, waiting.sequence};
  }
  using Candidates = std::vector<Waiting*>;
  Status enter(Waiting waiting);
  void leave(const Waiting& waiting);
  void give_up_keep(Waiting& waiting);
  void place(const Waiting& waiting, const Fit& fit, std::vector<Placement>& out);
  void place_in_turn(const Candidates& candidates, std::vector<ClusterMap::NodeId> nodes,
                     std::vector<Placement>& out);
  void count_overtaken(ClusterMap::Place place, Turn turn);
  void keep_for_overtaken();
  Explanation explain_wait(const Waiting& waiting) const;

  const SchedulerLimits limits_;
  ClusterMap map_;
  std::uint64_t sequence_ = 0;
  std::size_t keeps_ = 0;
  std::map<std::string, std::unique_ptr<Waiting>, std::less<>> waiting_;
  Candidates queue_;  // In turn.
  std::set<std::uint64_t> sequences_;
  std::set<std::uint64_t> untried_;  // Sequences of those that no search has been made for.
};

// Whether a request says what a request can say. kInvalid tells what is wrong.
Status check(const Request& request);

// "GPU 1 has 2 groups and 10 GiB free; it needs 4 groups and 8 GiB".
std::string text_of(const Judgement& judgement);

}  // namespace flyt::placement
