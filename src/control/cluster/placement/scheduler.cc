#include "control/cluster/placement/scheduler.h"

#include <algorithm>

#include "base/text.h"

namespace flyt::placement {
namespace {

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }

bool is_text(const std::string& text) { return text.size() <= kRequestTextBytesMax; }

bool are_texts(const Labels& labels) {
  return labels.size() <= kRequestLabelsMax &&
         std::all_of(labels.begin(), labels.end(), [](const auto& label) {
           return !label.first.empty() && is_text(label.first) && is_text(label.second);
         });
}

}  // namespace

Status check(const Request& request) {
  if (request.id.empty() || !is_text(request.id)) {
    return invalid("a request has an id of 1 to " + std::to_string(kRequestTextBytesMax) +
                   " bytes");
  }
  if (request.sms == 0) return invalid("a virtual GPU has at least 1 multiprocessor");
  if (request.memory_bytes == 0) return invalid("a virtual GPU has some memory");
  if (request.priority < -kRequestPriorityMax || request.priority > kRequestPriorityMax) {
    return invalid("a priority is from " + std::to_string(-kRequestPriorityMax) + " to " +
                   std::to_string(kRequestPriorityMax));
  }
  if (!is_text(request.host) || !is_text(request.kind) || !is_text(request.node) ||
      !is_text(request.reach.value_or(""))) {
    return invalid("a name has at most " + std::to_string(kRequestTextBytesMax) + " bytes");
  }
  if (!are_texts(request.labels) || !are_texts(request.require)) {
    return invalid("there are at most " + std::to_string(kRequestLabelsMax) + " labels of " +
                   std::to_string(kRequestTextBytesMax) + " bytes, each with a key");
  }
  if (request.gpu && request.node.empty()) return invalid("a GPU is one of a node: name it, too");
  if (request.avoid.size() > kAvoidedNodesMax || request.apart.size() > kRequestLabelsMax) {
    return invalid("there are too many nodes to avoid, or labels to be kept apart by");
  }
  for (const Apart& apart : request.apart) {
    if (request.labels.count(apart.key) != 0) continue;
    return invalid("it is to be kept apart by the label " + apart.key + ", and has none");
  }
  return {};
}

Status Scheduler::submit(const Request& request) {
  if (Status status = check(request); !status) return status;
  return enter({.request = request, .sequence = sequence_ + 1, .overtaken = 0, .kept = {}});
}

Status Scheduler::resume(const Waiting& waiting) {
  if (Status status = check(waiting.request); !status) return status;
  if (waiting.sequence == 0) return invalid("nobody has turn 0");
  if (sequences_.count(waiting.sequence) != 0) return invalid("two have the same turn");
  Waiting copy = waiting;
  copy.kept.reset();
  return enter(std::move(copy));
}

Status Scheduler::enter(Waiting waiting) {
  const std::string id = waiting.request.id;
  if (waiting_.count(id) != 0 || map_.lease(id) != nullptr) {
    return Error{ErrorCode::kDenied, id + " waits or has a lease already"};
  }
  if (queue_.size() >= limits_.waiting_max) {
    return Error{ErrorCode::kLimit, std::to_string(queue_.size()) + " requests wait already"};
  }
  sequence_ = std::max(sequence_, waiting.sequence);
  untried_.insert(waiting.sequence);
  sequences_.insert(waiting.sequence);
  auto held = std::make_unique<Waiting>(std::move(waiting));
  const auto place = std::upper_bound(
      queue_.begin(), queue_.end(), turn_of(*held),
      [this](const Turn& turn, const Waiting* other) { return turn.before(turn_of(*other)); });
  queue_.insert(place, held.get());
  waiting_.emplace(id, std::move(held));
  return {};
}

void Scheduler::leave(const Waiting& waiting) {
  untried_.erase(waiting.sequence);
  sequences_.erase(waiting.sequence);
  const auto place = std::lower_bound(
      queue_.begin(), queue_.end(), turn_of(waiting),
      [this](const Waiting* other, const Turn& turn) { return turn_of(*other).before(turn); });
  const auto mine = waiting_.find(waiting.request.id);
  give_up_keep(*mine->second);
  queue_.erase(place);
  waiting_.erase(mine);
}

void Scheduler::give_up_keep(Waiting& waiting) {
  if (!waiting.kept) return;
  map_.give_up(*waiting.kept);
  waiting.kept.reset();
  --keeps_;
}

bool Scheduler::cancel(std::string_view id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return false;
  leave(*found->second);
  return true;
}

std::vector<Placement> Scheduler::pump() {
  std::vector<Placement> placed;
  for (;;) {
    std::vector<ClusterMap::NodeId> nodes = map_.take_roomier();
    if (nodes.empty() && untried_.empty()) return placed;
    if (!nodes.empty()) {
      place_in_turn(queue_, std::move(nodes), placed);
    } else {
      Candidates fresh;
      for (Waiting* waiting : queue_) {
        if (untried_.count(waiting->sequence) != 0) fresh.push_back(waiting);
        if (fresh.size() == untried_.size()) break;
      }
      place_in_turn(fresh, {}, placed);
    }
    keep_for_overtaken();
  }
}

// Those who have been tried in vain can fit only where there is more room than there was.
void Scheduler::place_in_turn(const Candidates& candidates, std::vector<ClusterMap::NodeId> nodes,
                              std::vector<Placement>& out) {
  const Candidates in_turn = candidates;
  for (const Waiting* waiting : in_turn) {
    const Turn turn = turn_of(*waiting);
    const bool untried = untried_.erase(waiting->sequence) != 0;
    const auto fit = untried ? map_.find(waiting->request, turn)
                             : map_.find_among(waiting->request, turn, nodes);
    if (!fit) continue;
    place(*waiting, *fit, out);
    // What was kept for it is room for those behind it.
    for (const ClusterMap::NodeId node : map_.take_roomier()) {
      if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
    }
  }
}

void Scheduler::place(const Waiting& waiting, const Fit& fit, std::vector<Placement>& out) {
  const Turn turn = turn_of(waiting);
  Placement placed{map_.lease_of(waiting.request, fit), waiting.request};
  HeldLease& lease = placed.lease;
  const Request& request = placed.request;
  const NodeFacts& node = map_.facts(fit.node);
  lease.why = std::string(to_string(request.policy)) + ": ";
  if (request.policy == Policy::kHostFirst && !request.host.empty()) {
    lease.why += node.host == request.host ? "its own host has room"
                                           : "its own host has no room, and of the others ";
  }
  if (request.policy == Policy::kSpread) {
    lease.why += "the least used";
  } else if (request.policy == Policy::kPack || node.host != request.host || request.host.empty()) {
    lease.why += "the one with least left over";
  }
  lease.why += "; " + counted(fit.candidates, "GPU") + " had room";
  for (const GpuFacts& gpu : node.gpus) {
    if (gpu.index != fit.gpu || gpu.sm_percent <= 100) continue;
    lease.why += "; its multiprocessors are shared: " +
                 std::to_string(std::uint64_t{lease.sms} * 100 / gpu.sm_percent) + " of " +
                 std::to_string(lease.sms) + " when all are busy";
  }
  leave(waiting);
  const Status held = map_.hold(lease);
  FLYT_ASSERT(held.ok());
  count_overtaken({fit.node, fit.gpu}, turn);
  out.push_back(std::move(placed));
}

void Scheduler::count_overtaken(ClusterMap::Place place, Turn turn) {
  for (Waiting* waiting : queue_) {
    if (!turn_of(*waiting).before(turn)) return;
    if (waiting->overtaken < limits_.overtaken_max && map_.could_use(place, waiting->request)) {
      ++waiting->overtaken;
    }
  }
}

void Scheduler::keep_for_overtaken() {
  for (Waiting* waiting : queue_) {
    if (waiting->overtaken < limits_.overtaken_max) continue;
    if (waiting->kept && map_.could_use(*waiting->kept, waiting->request)) continue;
    give_up_keep(*waiting);
    if (keeps_ >= limits_.keeps_max) return;
    waiting->kept = map_.nearest(waiting->request, turn_of(*waiting));
    if (!waiting->kept) continue;
    map_.keep(*waiting->kept, turn_of(*waiting));
    ++keeps_;
  }
}

Result<HeldLease> Scheduler::resize(std::string_view lease, std::uint32_t sms,
                                    std::uint64_t memory_bytes) {
  auto resized = map_.resized(lease, sms, memory_bytes);
  if (!resized) return resized;
  if (Status held = map_.hold(*resized); !held) return held.error();
  return resized;
}

const Waiting* Scheduler::waiting(std::string_view id) const {
  const auto found = waiting_.find(id);
  return found == waiting_.end() ? nullptr : found->second.get();
}

std::optional<std::size_t> Scheduler::ahead(std::string_view id) const {
  const Waiting* mine = waiting(id);
  if (mine == nullptr) return std::nullopt;
  const auto place = std::lower_bound(
      queue_.begin(), queue_.end(), turn_of(*mine),
      [this](const Waiting* other, const Turn& turn) { return turn_of(*other).before(turn); });
  return static_cast<std::size_t>(place - queue_.begin());
}

}  // namespace flyt::placement
