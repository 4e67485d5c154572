// Explanations: what the scheduler's answers look like to people.

#include <algorithm>
#include <map>

#include "base/text.h"
#include "control/cluster/placement/scheduler.h"

namespace flyt::placement {
namespace {

std::string missing_text(const Judgement& said) {
  return "GPU " + std::to_string(said.gpu) + " has " + counted(said.groups_free, "group") +
         " and " + size_text(said.memory_free) + " free; it needs " +
         counted(said.groups_needed, "group") + " and " + size_text(said.memory_needed);
}

// What many nodes have in common, for one line about all of them.
std::string_view reason_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kLost:
      return "lost";
    case Verdict::kDraining:
      return "draining";
    case Verdict::kCordoned:
      return "cordoned";
    case Verdict::kAvoided:
      return "refused it";
    case Verdict::kOtherNode:
      return "not the node that is wished";
    case Verdict::kOtherLabels:
      return "without the labels that it requires";
    case Verdict::kOutOfReach:
      return "without an address for its machine";
    case Verdict::kNoGpu:
      return "without such a GPU";
    case Verdict::kBroken:
      return "with broken GPUs";
    case Verdict::kOtherKind:
      return "with GPUs of another kind";
    case Verdict::kOtherMode:
      return "with GPUs in another mode";
    case Verdict::kOversubscribed:
      return "with shared multiprocessors only";
    case Verdict::kTooSmall:
      return "with GPUs that are too small";
    case Verdict::kApart:
      return "with leases that it is kept apart from";
    case Verdict::kLeasesFull:
      return "with as many leases as they take";
    case Verdict::kNoMemory:
      return "with too little memory free";
    case Verdict::kNoGroups:
      return "with too few groups free";
    case Verdict::kNeither:
      return "with too little memory and too few groups free";
    case Verdict::kKept:
      return "kept for somebody before it";
    case Verdict::kRoom:
      return "with room";
  }
  return "";
}

std::string summary_of(const std::vector<NodeAnswer>& nodes) {
  std::map<Verdict, std::size_t> counts;
  for (const NodeAnswer& node : nodes) ++counts[node.judgement.verdict];
  std::string text;
  for (auto count = counts.rbegin(); count != counts.rend(); ++count) {
    text += (text.empty() ? "" : ", ") + std::to_string(count->second) + " " +
            std::string(reason_of(count->first));
  }
  return counted(nodes.size(), "node") + (text.empty() ? "" : ": ") + text;
}

}  // namespace

std::string text_of(const Judgement& said) {
  switch (said.verdict) {
    case Verdict::kLost:
      return "the node is lost";
    case Verdict::kDraining:
      return "the node drains";
    case Verdict::kCordoned:
      return "the node is cordoned";
    case Verdict::kAvoided:
      return "the node refused it";
    case Verdict::kOtherNode:
      return "another node is wished";
    case Verdict::kOtherLabels:
      return "the node has not the labels that it requires";
    case Verdict::kOutOfReach:
      return "the node's leases have no address for its machine";
    case Verdict::kNoGpu:
      return "there is no such GPU";
    case Verdict::kBroken:
      return "GPU " + std::to_string(said.gpu) + " is not usable";
    case Verdict::kOtherKind:
      return "its GPUs are of another kind";
    case Verdict::kOtherMode:
      return "its GPUs are in another mode";
    case Verdict::kOversubscribed:
      return "its GPUs' multiprocessors are shared, and the request does not agree to that";
    case Verdict::kTooSmall:
      return "its GPUs are too small, even empty";
    case Verdict::kApart:
      return "a lease is there that it is kept apart from";
    case Verdict::kLeasesFull:
      return "the node has as many leases as it takes";
    case Verdict::kNoMemory:
    case Verdict::kNoGroups:
    case Verdict::kNeither:
      return missing_text(said);
    case Verdict::kKept:
      return "GPU " + std::to_string(said.gpu) + " has room, and is kept for somebody before it";
    case Verdict::kRoom:
      return "GPU " + std::to_string(said.gpu) + " has room";
  }
  return "";
}

Explanation Scheduler::explain_wait(const Waiting& waiting) const {
  Explanation told;
  told.state = Explanation::State::kWaiting;
  told.overtaken = waiting.overtaken;
  const Turn turn = turn_of(waiting);
  const auto place = std::lower_bound(
      queue_.begin(), queue_.end(), turn,
      [this](const Waiting* other, const Turn& mine) { return turn_of(*other).before(mine); });
  told.ahead = static_cast<std::size_t>(place - queue_.begin());
  told.possible = map_.possible(waiting.request);
  for (const ClusterMap::NodeId id : map_.nodes()) {
    const Judgement said = map_.judge(id, waiting.request, turn);
    told.nodes.push_back({map_.facts(id).name, said, text_of(said)});
  }
  if (waiting.kept && map_.could_use(*waiting.kept, waiting.request)) {
    told.kept = map_.facts(waiting.kept->node).name + " GPU " + std::to_string(waiting.kept->gpu);
  }
  told.text = "waiting for a GPU: " + std::to_string(told.ahead) + " ahead of it; ";
  if (!told.possible) told.text += "no node could ever take it; ";
  if (!told.kept.empty()) told.text += told.kept + " is kept for it; ";
  told.text += summary_of(told.nodes);
  return told;
}

Explanation Scheduler::explain(std::string_view id) const {
  if (const Waiting* waits = waiting(id)) return explain_wait(*waits);
  Explanation told;
  const HeldLease* lease = map_.lease(id);
  if (lease == nullptr) {
    told.text = "there is no such lease, and nobody waits for it";
    return told;
  }
  told.state = Explanation::State::kPlaced;
  told.possible = true;
  told.text = lease->node + " GPU " + std::to_string(lease->gpu) + ", " +
              std::to_string(lease->sms) + " multiprocessors, " + size_text(lease->memory_bytes);
  if (!lease->why.empty()) told.text += ": " + lease->why;
  return told;
}

Explanation Scheduler::what_if(const Request& request) const {
  if (Status status = check(request); !status) {
    Explanation told;
    told.text = status.error().message;
    return told;
  }
  const Waiting waiting{.request = request, .sequence = sequence_ + 1, .overtaken = 0, .kept = {}};
  const auto fit = map_.find(request, turn_of(waiting));
  Explanation told = explain_wait(waiting);
  if (!fit) return told;
  told.state = Explanation::State::kPlaced;
  told.text = map_.facts(fit->node).name + " GPU " + std::to_string(fit->gpu) + " has room";
  return told;
}

}  // namespace flyt::placement
