#include "control/cluster/placement/cluster_map.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

#include "base/sm_cut.h"
#include "base/text.h"

namespace flyt::placement {
namespace {

constexpr std::uint64_t kEverywhere = ~std::uint64_t{0};
// The next GPU's turn in a score that counts in thousandths.
constexpr std::uint64_t kWhole = 1000;

// A label as one word. Two that differ are taken for equal once in 2^64: a lease would be kept
// apart from one that it could have shared a node with.
std::uint64_t word_of(std::string_view key, std::string_view value) {
  std::uint64_t word = 0xCBF29CE484222325ULL;
  const auto take = [&word](std::string_view text) {
    for (const char c : text) word = (word ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    word = (word ^ 0xFF) * 0x100000001B3ULL;
  };
  take(key);
  take(value);
  return word;
}

std::uint64_t add_up(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b
             ? std::numeric_limits<std::uint64_t>::max()
             : a + b;
}

std::uint64_t left(std::uint64_t whole, std::uint64_t used) {
  return whole > used ? whole - used : 0;
}

std::uint64_t part(std::uint64_t used, std::uint64_t whole) {
  return whole == 0 ? kWhole : used * kWhole / whole;
}

}  // namespace

struct ClusterMap::Gpu {
  std::uint32_t index = 0;
  std::string kind;
  GpuMode mode = GpuMode::kIsolated;
  bool usable = true;
  std::uint32_t percent = 100;
  SmCut cut;
  std::uint64_t memory = 0;  // What leases may have.

  // How often groups are given away, and how often they may be.
  std::uint32_t groups_given = 0;
  std::uint32_t rest_given = 0;
  std::uint32_t sms_given = 0;
  std::uint64_t memory_given = 0;
  std::uint32_t leases = 0;
  Turn kept;  // Sequence 0: for nobody.

  std::uint32_t groups_most() const {
    return static_cast<std::uint32_t>(std::uint64_t{cut.groups} * percent / 100);
  }
  std::uint32_t groups_free() const {
    return static_cast<std::uint32_t>(left(groups_most(), groups_given));
  }
  bool rest_free() const { return cut.rest != 0 && rest_given < percent / 100; }
  std::uint64_t memory_free() const { return left(memory, memory_given); }
  std::uint32_t sms_free() const {
    return groups_free() * cut.group + (rest_free() ? cut.rest : 0);
  }

  // What so many multiprocessors take: of those that are free, and of an empty GPU.
  std::optional<SmShare> room(std::uint64_t wanted) const {
    return cut.share(wanted, groups_free(), rest_free());
  }
  // What a lease has. What is more than there is counts as all of it.
  SmShare share_of(const HeldLease& lease) const {
    const std::uint32_t sms = std::min(lease.sms, cut.sms());
    if (sms == 0 || cut.group == 0) return {};
    if (!lease.rest || cut.rest == 0) {
      if (const auto share = cut.share(sms)) return *share;
      return {cut.groups, cut.rest != 0};
    }
    const std::uint32_t usual = *lease.rest ? sms - std::min(sms, cut.rest) : sms;
    return {std::min((usual + cut.group - 1) / cut.group, cut.groups), *lease.rest};
  }
  void give(const SmShare& share) {
    groups_given += share.groups;
    rest_given += share.rest ? 1 : 0;
    sms_given += cut.sms_of(share);
  }
  void take_back(const SmShare& share) {
    groups_given -= share.groups;
    rest_given -= share.rest ? 1 : 0;
    sms_given -= cut.sms_of(share);
  }
  // As people count them: the rest is one where it is granted like the others.
  std::uint32_t count(const SmShare& share) const {
    return share.groups + (share.rest && cut.rest_is_group ? 1 : 0);
  }
  std::uint32_t count_free() const { return count({groups_free(), rest_free()}); }
  // How many it takes at least, of what may be free with the rest as it is.
  std::uint32_t count_needed(std::uint64_t wanted) const {
    auto share = cut.share(wanted, cut.groups, rest_free());
    if (!share) share = cut.share(wanted);
    return share ? count(*share) : 0;
  }
};

// Labels that keep leases apart, of one lease of a node.
struct Mark {
  std::uint64_t label = 0;
  std::uint32_t gpu = 0;
  Apart::From from = Apart::From::kNode;
};

struct ClusterMap::Node {
  NodeFacts facts;
  std::vector<Gpu> gpus;
  std::vector<const HeldLease*> leases;
  std::vector<Mark> labels;  // What leases have,
  std::vector<Mark> apart;   // and what they do not want beside them.
  std::uint32_t sms = 0;
  std::uint32_t sms_given = 0;

  Gpu* gpu(std::uint32_t index) {
    for (Gpu& gpu : gpus) {
      if (gpu.index == index) return &gpu;
    }
    return nullptr;
  }
  const Gpu* gpu(std::uint32_t index) const {
    for (const Gpu& gpu : gpus) {
      if (gpu.index == index) return &gpu;
    }
    return nullptr;
  }
};

// A request, made ready to be compared with many GPUs.
struct ClusterMap::Query {
  const Request& request;
  Turn turn;
  std::vector<std::uint64_t> labels;
  std::vector<Mark> apart;

  Query(const Request& asked, Turn its_turn) : request(asked), turn(its_turn) {
    for (const auto& [key, value] : asked.labels) labels.push_back(word_of(key, value));
    for (const Apart& one : asked.apart) {
      const auto found = asked.labels.find(one.key);
      if (found == asked.labels.end()) continue;
      apart.push_back({word_of(found->first, found->second), 0, one.from});
    }
  }

  // The GPUs of a node, by their places in it, where leases are that this one may not be with.
  std::uint64_t refused(const Node& node) const {
    std::uint64_t mask = 0;
    const auto refuse = [&](const Mark& mark, Apart::From from) {
      if (from == Apart::From::kNode) mask = kEverywhere;
      for (std::size_t i = 0; i < node.gpus.size(); ++i) {
        if (node.gpus[i].index == mark.gpu) mask |= std::uint64_t{1} << i;
      }
    };
    for (const Mark& mine : apart) {
      for (const Mark& there : node.labels) {
        if (there.label == mine.label) refuse(there, mine.from);
      }
    }
    if (node.apart.empty()) return mask;
    for (const std::uint64_t label : labels) {
      for (const Mark& there : node.apart) {
        if (there.label == label) refuse(there, there.from);
      }
    }
    return mask;
  }

  // Whether this kind of node is meant at all.
  Verdict wished(const Node& node) const {
    if (!request.node.empty() && request.node != node.facts.name) return Verdict::kOtherNode;
    for (const auto& [key, value] : request.require) {
      const auto found = node.facts.labels.find(key);
      if (found == node.facts.labels.end() || found->second != value) return Verdict::kOtherLabels;
    }
    if (node.facts.host_only && request.reach && *request.reach != node.facts.host) {
      return Verdict::kOutOfReach;
    }
    return Verdict::kRoom;
  }

  Verdict judge(const Node& node) const {
    switch (node.facts.state) {
      case NodeState::kReady:
        break;
      case NodeState::kCordoned:
        return Verdict::kCordoned;
      case NodeState::kDraining:
        return Verdict::kDraining;
      case NodeState::kLost:
        return Verdict::kLost;
    }
    const auto& avoid = request.avoid;
    if (std::find(avoid.begin(), avoid.end(), node.facts.name) != avoid.end()) {
      return Verdict::kAvoided;
    }
    return wished(node);
  }

  // Whether the GPU, empty, could take it.
  Verdict suits(const Node& node, const Gpu& gpu) const {
    if (request.gpu && *request.gpu != gpu.index) return Verdict::kNoGpu;
    if (!gpu.usable) return Verdict::kBroken;
    if (!request.kind.empty() && request.kind != gpu.kind) return Verdict::kOtherKind;
    if (request.mode && *request.mode != gpu.mode) return Verdict::kOtherMode;
    if (gpu.percent > 100 && !request.share_sms) return Verdict::kOversubscribed;
    const std::uint64_t memory = add_up(request.memory_bytes, node.facts.overhead_per_lease);
    if (!gpu.cut.share(request.sms) || memory > gpu.memory) return Verdict::kTooSmall;
    return Verdict::kRoom;
  }

  Judgement judge(const Node& node, const Gpu& gpu, bool apart_from_here) const {
    Judgement said;
    said.gpu = gpu.index;
    said.groups_needed = gpu.count_needed(request.sms);
    said.groups_free = gpu.count_free();
    said.memory_needed = add_up(request.memory_bytes, node.facts.overhead_per_lease);
    said.memory_free = gpu.memory_free();
    said.verdict = suits(node, gpu);
    if (said.verdict != Verdict::kRoom) return said;
    const bool memory = said.memory_needed <= said.memory_free;
    const bool groups = gpu.room(request.sms).has_value();
    if (apart_from_here) {
      said.verdict = Verdict::kApart;
    } else if (node.leases.size() >= node.facts.leases_max) {
      said.verdict = Verdict::kLeasesFull;
    } else if (!memory || !groups) {
      said.verdict = memory ? Verdict::kNoGroups : groups ? Verdict::kNoMemory : Verdict::kNeither;
    } else if (gpu.kept.sequence != 0 && gpu.kept.before(turn)) {
      said.verdict = Verdict::kKept;
    }
    return said;
  }
};

// The best of the GPUs that have room: the one with the smallest score, and of equals the first.
class ClusterMap::Search {
 public:
  explicit Search(const Query& query) : query_(query) {}

  void look_at(NodeId id, const Node& node) {
    if (query_.judge(node) != Verdict::kRoom) return;
    const std::uint64_t refused = query_.refused(node);
    if (refused == kEverywhere) return;
    for (std::size_t i = 0; i < node.gpus.size(); ++i) {
      const Gpu& gpu = node.gpus[i];
      const bool apart = (refused >> i & 1) != 0;
      if (query_.judge(node, gpu, apart).verdict != Verdict::kRoom) continue;
      ++candidates_;
      const SmShare share = gpu.room(query_.request.sms).value_or(SmShare());
      const Score score = score_of(node, gpu, gpu.cut.sms_of(share));
      if (best_ && !(score < score_)) continue;
      score_ = score;
      best_ = Fit{.node = id,
                  .gpu = gpu.index,
                  .sms = gpu.cut.sms_of(share),
                  .groups = gpu.count(share),
                  .rest = share.rest,
                  .overhead_bytes = node.facts.overhead_per_lease};
    }
  }

  std::optional<Fit> best() const {
    std::optional<Fit> best = best_;
    if (best) best->candidates = candidates_;
    return best;
  }

 private:
  using Score = std::array<std::uint64_t, 5>;

  Score score_of(const Node& node, const Gpu& gpu, std::uint32_t sms) const {
    const Request& request = query_.request;
    if (request.policy == Policy::kSpread) {
      return {part(node.sms_given, node.sms), part(gpu.sms_given, gpu.cut.sms()),
              part(gpu.memory_given, gpu.memory), node.leases.size(), 0};
    }
    const bool own = request.policy == Policy::kHostFirst && !request.host.empty() &&
                     request.host == node.facts.host;
    // GPUs whose groups nobody shares are left to those who need them.
    const bool wasteful = request.share_sms && gpu.percent <= 100;
    const std::uint64_t empty = node.leases.empty() ? 2 : (gpu.leases == 0 ? 1 : 0);
    return {own ? 0u : 1u, wasteful ? 1u : 0u, empty, left(gpu.sms_free(), sms),
            left(gpu.memory_free(), request.memory_bytes)};
  }

  const Query& query_;
  std::optional<Fit> best_;
  Score score_{};
  std::uint32_t candidates_ = 0;
};

namespace {

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }

Status check_gpu(const GpuFacts& gpu) {
  const std::string name = "GPU " + std::to_string(gpu.index);
  if (gpu.groups.empty() || gpu.groups.size() > 4096) {
    return invalid(name + " has " + std::to_string(gpu.groups.size()) + " groups");
  }
  for (std::size_t i = 0; i < gpu.groups.size(); ++i) {
    const bool odd_one = i > 0 && i + 1 == gpu.groups.size();
    if (gpu.groups[i] == 0 || gpu.groups[i] > 4096 ||
        (gpu.groups[i] != gpu.groups.front() && !odd_one)) {
      return invalid(name + "'s groups are not of one size");
    }
  }
  if (gpu.sm_percent < 100 || gpu.sm_percent > kSmPercentMax) {
    return invalid(name + " gives out " + std::to_string(gpu.sm_percent) +
                   " percent of its multiprocessors; from 100 to " + std::to_string(kSmPercentMax) +
                   " are possible");
  }
  return {};
}

Status check_node(const NodeFacts& facts) {
  if (facts.name.empty()) return invalid("a node has a name");
  if (facts.gpus.size() > kGpusOfNodeMax) {
    return invalid("a node has at most " + std::to_string(kGpusOfNodeMax) + " GPUs");
  }
  for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
    if (Status status = check_gpu(facts.gpus[i]); !status) return status;
    for (std::size_t j = 0; j < i; ++j) {
      if (facts.gpus[i].index != facts.gpus[j].index) continue;
      return invalid("GPU " + std::to_string(facts.gpus[i].index) + " is there twice");
    }
  }
  return {};
}

}  // namespace

ClusterMap::ClusterMap() = default;
ClusterMap::~ClusterMap() = default;

Status ClusterMap::set_node(const NodeFacts& facts) {
  if (Status status = check_node(facts); !status) return status;
  const auto known = ids_.find(facts.name);
  NodeId id = known == ids_.end() ? 0 : known->second;
  if (known == ids_.end()) {
    if (unused_.empty()) {
      id = static_cast<NodeId>(nodes_.size());
      nodes_.emplace_back();
      summaries_.emplace_back();
    } else {
      id = unused_.back();
      unused_.pop_back();
    }
    nodes_[id] = std::make_unique<Node>();
    ids_.emplace(facts.name, id);
    const auto place = std::lower_bound(
        order_.begin(), order_.end(), facts.name,
        [this](NodeId a, const std::string& name) { return at(a).facts.name < name; });
    at(id).facts.name = facts.name;
    order_.insert(place, id);
  }
  Node& node = at(id);
  std::vector<Gpu> before = std::move(node.gpus);
  node.facts = facts;
  node.gpus.clear();
  node.sms = 0;
  for (const GpuFacts& one : facts.gpus) {
    Gpu gpu;
    gpu.index = one.index;
    gpu.kind = one.kind;
    gpu.mode = one.mode;
    gpu.usable = one.usable;
    gpu.percent = one.sm_percent;
    gpu.cut = cut_of(one.groups, one.rest_is_group);
    gpu.memory = left(one.memory_bytes, one.reserve_bytes);
    for (const Gpu& old : before) {
      if (old.index == one.index) gpu.kept = old.kept;
    }
    node.sms += gpu.cut.sms();
    node.gpus.push_back(std::move(gpu));
  }
  count_again(node);
  summarise(id);
  roomier(id);
  return {};
}

bool ClusterMap::set_state(std::string_view name, NodeState state) {
  const auto id = node(name);
  if (!id) return false;
  at(*id).facts.state = state;
  summarise(*id);
  if (state == NodeState::kReady) roomier(*id);
  return true;
}

bool ClusterMap::remove_node(std::string_view name) {
  const auto id = node(name);
  if (!id) return false;
  std::vector<std::string> leases;
  for (const HeldLease* lease : at(*id).leases) leases.push_back(lease->id);
  for (const std::string& lease : leases) release(lease);
  ids_.erase(ids_.find(name));
  std::erase(order_, *id);
  std::erase(roomier_, *id);
  nodes_[*id].reset();
  summaries_[*id] = {};
  unused_.push_back(*id);
  return true;
}

// Adds to what is given away, but does not remember the lease.
void ClusterMap::add(Node& node, const HeldLease& lease) {
  node.leases.push_back(&lease);
  for (const auto& [key, value] : lease.labels) {
    node.labels.push_back({word_of(key, value), lease.gpu, Apart::From::kNode});
  }
  for (const Apart& one : lease.apart) {
    const auto found = lease.labels.find(one.key);
    if (found == lease.labels.end()) continue;
    node.apart.push_back({word_of(found->first, found->second), lease.gpu, one.from});
  }
  Gpu* gpu = node.gpu(lease.gpu);
  if (gpu == nullptr) return;
  const SmShare share = gpu->share_of(lease);
  gpu->give(share);
  gpu->memory_given = add_up(gpu->memory_given, add_up(lease.memory_bytes, lease.overhead_bytes));
  ++gpu->leases;
  node.sms_given += gpu->cut.sms_of(share);
}

void ClusterMap::count_again(Node& node) {
  for (Gpu& gpu : node.gpus) {
    gpu.groups_given = gpu.rest_given = gpu.sms_given = gpu.leases = 0;
    gpu.memory_given = 0;
  }
  node.labels.clear();
  node.apart.clear();
  node.sms_given = 0;
  const std::vector<const HeldLease*> leases = std::move(node.leases);
  node.leases.clear();
  for (const HeldLease* lease : leases) add(node, *lease);
}

void ClusterMap::summarise(NodeId id) {
  const Node& node = at(id);
  Summary summary{.ready = node.facts.state == NodeState::kReady &&
                           node.leases.size() < node.facts.leases_max};
  for (const Gpu& gpu : node.gpus) {
    summary.sms_free = std::max(summary.sms_free, gpu.sms_free());
    summary.memory_free = std::max(summary.memory_free, gpu.memory_free());
  }
  summaries_[id] = summary;
}

void ClusterMap::roomier(NodeId id) {
  if (std::find(roomier_.begin(), roomier_.end(), id) == roomier_.end()) roomier_.push_back(id);
}

Status ClusterMap::hold(const HeldLease& lease) {
  const auto id = node(lease.node);
  if (!id) return Error{ErrorCode::kNotFound, "there is no node " + lease.node};
  release(lease.id);
  const auto [held, added] = leases_.emplace(lease.id, Held{lease, *id});
  FLYT_ASSERT(added);
  add(at(*id), held->second.lease);
  summarise(*id);
  return {};
}

bool ClusterMap::release(std::string_view name) {
  const auto held = leases_.find(name);
  if (held == leases_.end()) return false;
  const NodeId id = held->second.node;
  std::erase(at(id).leases, &held->second.lease);
  leases_.erase(held);
  count_again(at(id));
  summarise(id);
  roomier(id);
  return true;
}

Result<HeldLease> ClusterMap::resized(std::string_view name, std::uint32_t sms,
                                      std::uint64_t memory_bytes) const {
  const auto held = leases_.find(name);
  if (held == leases_.end()) return Error{ErrorCode::kNotFound, "there is no such lease"};
  HeldLease lease = held->second.lease;
  const Node& node = at(held->second.node);
  const Gpu* there = node.gpu(lease.gpu);
  if (there == nullptr) return Error{ErrorCode::kLimit, "the lease's GPU is not there"};
  // As if it were not there.
  Gpu gpu = *there;
  gpu.take_back(gpu.share_of(lease));
  gpu.memory_given = left(gpu.memory_given, add_up(lease.memory_bytes, lease.overhead_bytes));
  if (!gpu.cut.share(sms)) {
    return invalid("the GPU has " + std::to_string(gpu.cut.sms()) + " multiprocessors, not " +
                   std::to_string(sms));
  }
  const auto room = gpu.room(sms);
  const SmShare share = room ? *room : *gpu.cut.share(sms);
  const bool grows = gpu.cut.sms_of(share) > lease.sms || memory_bytes > lease.memory_bytes;
  if (grows && gpu.kept.sequence != 0) {
    return Error{ErrorCode::kLimit, "the GPU is kept for somebody who waits"};
  }
  if (grows && !room) {
    return Error{ErrorCode::kLimit, "the GPU has room for " + std::to_string(gpu.count_free()) +
                                        " of the " + std::to_string(gpu.count_needed(sms)) +
                                        " groups of multiprocessors that this lease needs"};
  }
  if (grows && add_up(memory_bytes, lease.overhead_bytes) > gpu.memory_free()) {
    return Error{ErrorCode::kLimit, "the GPU has " +
                                        size_text(left(gpu.memory_free(), lease.overhead_bytes)) +
                                        " for this lease, not " + size_text(memory_bytes)};
  }
  lease.sms = gpu.cut.sms_of(share);
  lease.rest = share.rest;
  lease.memory_bytes = memory_bytes;
  return lease;
}

HeldLease ClusterMap::changing(const HeldLease& after) const {
  HeldLease both = after;
  const auto held = leases_.find(after.id);
  if (held == leases_.end()) return both;
  const HeldLease& before = held->second.lease;
  both.sms = std::max(before.sms, after.sms);
  both.memory_bytes = std::max(before.memory_bytes, after.memory_bytes);
  const Gpu* gpu = at(held->second.node).gpu(after.gpu);
  if (gpu == nullptr) return both;
  const SmShare had = gpu->share_of(before);
  const SmShare gets = gpu->share_of(after);
  const SmShare all{std::max(had.groups, gets.groups), had.rest || gets.rest};
  both.sms = gpu->cut.sms_of(all);
  both.rest = all.rest;
  return both;
}

std::optional<Fit> ClusterMap::find(const Request& request, Turn turn) const {
  const Query query(request, turn);
  Search search(query);
  for (const NodeId id : order_) {
    const Summary& summary = summaries_[id];
    if (!summary.ready || summary.sms_free < request.sms ||
        summary.memory_free < request.memory_bytes) {
      continue;
    }
    search.look_at(id, at(id));
  }
  return search.best();
}

std::optional<Fit> ClusterMap::find_among(const Request& request, Turn turn,
                                          std::span<const NodeId> nodes) const {
  const Query query(request, turn);
  Search search(query);
  for (const NodeId id : nodes) search.look_at(id, at(id));
  return search.best();
}

HeldLease ClusterMap::lease_of(const Request& request, const Fit& fit) const {
  return {.id = request.id,
          .node = at(fit.node).facts.name,
          .gpu = fit.gpu,
          .sms = fit.sms,
          .memory_bytes = request.memory_bytes,
          .overhead_bytes = fit.overhead_bytes,
          .rest = fit.rest,
          .labels = request.labels,
          .apart = request.apart,
          .why = {}};
}

Judgement ClusterMap::judge(NodeId id, const Request& request, Turn turn) const {
  const Query query(request, turn);
  const Node& node = at(id);
  Judgement nearest;
  nearest.verdict = query.judge(node);
  if (nearest.verdict != Verdict::kRoom) return nearest;
  nearest.verdict = Verdict::kNoGpu;
  const std::uint64_t refused = query.refused(node);
  bool first = true;
  for (std::size_t i = 0; i < node.gpus.size(); ++i) {
    const Judgement said = query.judge(node, node.gpus[i], (refused >> i & 1) != 0);
    const auto missing = [](const Judgement& one) {
      return std::pair(left(one.groups_needed, one.groups_free),
                       left(one.memory_needed, one.memory_free));
    };
    const bool nearer = said.verdict != nearest.verdict ? said.verdict > nearest.verdict
                                                        : first || missing(said) < missing(nearest);
    if (nearer) nearest = said;
    first = false;
  }
  return nearest;
}

std::optional<ClusterMap::Place> ClusterMap::nearest(const Request& request, Turn turn) const {
  const Query query(request, turn);
  std::optional<Place> best;
  std::array<std::uint64_t, 2> best_missing{};
  for (const NodeId id : order_) {
    const Node& node = at(id);
    if (query.judge(node) != Verdict::kRoom) continue;
    for (const Gpu& gpu : node.gpus) {
      if (gpu.kept.sequence != 0 || query.suits(node, gpu) != Verdict::kRoom) continue;
      const Judgement said = query.judge(node, gpu, false);
      // In thousandths of the GPU, so that memory and multiprocessors weigh the same.
      const std::uint64_t groups = part(left(said.groups_needed, said.groups_free), gpu.cut.groups);
      const std::uint64_t memory = part(left(said.memory_needed, said.memory_free), gpu.memory);
      const std::array missing{std::max(groups, memory), groups + memory};
      if (best && !(missing < best_missing)) continue;
      best = Place{id, gpu.index};
      best_missing = missing;
    }
  }
  return best;
}

void ClusterMap::keep(Place place, Turn turn) {
  if (Gpu* gpu = at(place.node).gpu(place.gpu)) gpu->kept = turn;
}

void ClusterMap::give_up(Place place) {
  if (place.node >= nodes_.size() || nodes_[place.node] == nullptr) return;
  Gpu* gpu = at(place.node).gpu(place.gpu);
  if (gpu == nullptr || gpu->kept.sequence == 0) return;
  gpu->kept = {};
  roomier(place.node);
}

bool ClusterMap::could_use(Place place, const Request& request) const {
  if (place.node >= nodes_.size() || nodes_[place.node] == nullptr) return false;
  const Query query(request, {});
  const Node& node = at(place.node);
  const Gpu* gpu = node.gpu(place.gpu);
  return gpu != nullptr && query.judge(node) == Verdict::kRoom &&
         query.suits(node, *gpu) == Verdict::kRoom;
}

bool ClusterMap::could_take(NodeId id, const Query& query) const {
  const Node& node = at(id);
  return query.wished(node) == Verdict::kRoom &&
         std::any_of(node.gpus.begin(), node.gpus.end(),
                     [&](const Gpu& gpu) { return query.suits(node, gpu) == Verdict::kRoom; });
}

bool ClusterMap::possible(const Request& request) const {
  const Query query(request, {});
  return std::any_of(order_.begin(), order_.end(),
                     [&](NodeId id) { return could_take(id, query); });
}

std::vector<ClusterMap::NodeId> ClusterMap::out_of_reach(const Request& request) const {
  std::vector<NodeId> nodes;
  if (!request.reach || possible(request)) return nodes;
  Request anywhere = request;
  anywhere.reach.reset();
  const Query query(anywhere, {});
  std::copy_if(order_.begin(), order_.end(), std::back_inserter(nodes),
               [&](NodeId id) { return could_take(id, query); });
  return nodes;
}

std::vector<ClusterMap::NodeId> ClusterMap::take_roomier() {
  std::vector<NodeId> nodes = std::move(roomier_);
  roomier_.clear();
  std::sort(nodes.begin(), nodes.end(),
            [this](NodeId a, NodeId b) { return at(a).facts.name < at(b).facts.name; });
  return nodes;
}

std::optional<ClusterMap::NodeId> ClusterMap::node(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const NodeFacts& ClusterMap::facts(NodeId id) const { return at(id).facts; }

const HeldLease* ClusterMap::lease(std::string_view id) const {
  const auto held = leases_.find(id);
  return held == leases_.end() ? nullptr : &held->second.lease;
}

std::vector<const HeldLease*> ClusterMap::leases_on(NodeId id) const { return at(id).leases; }

std::vector<ClusterMap::GpuUse> ClusterMap::use(NodeId id) const {
  std::vector<GpuUse> uses;
  for (const Gpu& gpu : at(id).gpus) {
    uses.push_back({.index = gpu.index,
                    .groups = gpu.count({gpu.cut.groups, gpu.cut.rest != 0}),
                    .groups_given = gpu.groups_given + (gpu.cut.rest_is_group ? gpu.rest_given : 0),
                    .sms = gpu.cut.sms(),
                    .sms_given = gpu.sms_given,
                    .memory_bytes = gpu.memory,
                    .memory_given = gpu.memory_given,
                    .leases = gpu.leases,
                    .kept = gpu.kept.sequence != 0});
  }
  return uses;
}

}  // namespace flyt::placement
