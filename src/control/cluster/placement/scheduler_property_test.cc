#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "base/sm_cut.h"
#include "control/cluster/placement/scheduler.h"
#include "control/cluster/placement/testing_facts.h"

namespace flyt::placement {
namespace {

NodeFacts random_node(Random& random, std::size_t number) {
  NodeFacts node = test_node("node-" + std::to_string(number), 0);
  const std::uint64_t gpus = 1 + random.below(3);
  for (std::uint32_t i = 0; i < gpus; ++i) {
    GpuFacts gpu =
        test_gpu(i, static_cast<std::uint32_t>(1 + random.below(8)), (4 + random.below(60)) * kGiB);
    if (random.one_in(2)) gpu.groups.push_back(4);
    if (random.one_in(2)) {
      gpu.groups.push_back(static_cast<std::uint32_t>(8 + random.below(12)));
      gpu.groups[gpu.groups.size() - 2] = 8;
      gpu.rest_is_group = true;
    }
    if (random.one_in(3)) gpu.mode = GpuMode::kShared;
    if (random.one_in(4)) gpu.sm_percent = static_cast<std::uint32_t>(100 + random.below(200));
    if (random.one_in(12)) gpu.usable = false;
    gpu.reserve_bytes = random.below(2 * kGiB);
    node.gpus.push_back(gpu);
  }
  node.overhead_per_lease = random.below(kGiB);
  node.leases_max = static_cast<std::uint32_t>(1 + random.below(12));
  if (random.one_in(3)) node.labels["rack"] = std::to_string(random.below(2));
  return node;
}

Request random_request(Random& random, std::uint64_t number) {
  Request request =
      test_request("lease-" + std::to_string(number),
                   static_cast<std::uint32_t>(1 + random.below(40)), 1 + random.below(20 * kGiB));
  request.priority = static_cast<std::int32_t>(random.below(3));
  request.policy = static_cast<Policy>(random.below(3));
  request.host = "node-" + std::to_string(random.below(8));
  request.share_sms = random.one_in(2);
  if (random.one_in(5)) request.mode = GpuMode::kShared;
  if (random.one_in(8)) request.require["rack"] = "1";
  if (random.one_in(8)) request.node = "node-" + std::to_string(random.below(8));
  if (random.one_in(6)) {
    request.labels["service"] = std::to_string(random.below(4));
    const auto from = random.one_in(2) ? Apart::From::kNode : Apart::From::kGpu;
    if (random.one_in(2)) request.apart = {{"service", from}};
  }
  return request;
}

void check_apart(const std::vector<const HeldLease*>& leases) {
  for (const HeldLease* one : leases) {
    for (const Apart& apart : one->apart) {
      for (const HeldLease* other : leases) {
        if (other == one || other->labels.count(apart.key) == 0) continue;
        if (apart.from == Apart::From::kGpu && other->gpu != one->gpu) continue;
        ASSERT_NE(other->labels.at(apart.key), one->labels.at(apart.key));
      }
    }
  }
}

// What must hold after every step, computed from the leases alone.
void check_node(const ClusterMap& map, ClusterMap::NodeId id) {
  const NodeFacts& node = map.facts(id);
  const auto leases = map.leases_on(id);
  ASSERT_LE(leases.size(), node.leases_max);
  for (const GpuFacts& gpu : node.gpus) {
    std::uint64_t memory = gpu.reserve_bytes;
    std::uint64_t groups = 0;
    std::uint64_t rests = 0;
    const SmCut cut = cut_of(gpu.groups, gpu.rest_is_group);
    for (const HeldLease* lease : leases) {
      if (lease->gpu != gpu.index) continue;
      memory += lease->memory_bytes + lease->overhead_bytes;
      ASSERT_TRUE(lease->rest);
      const std::uint32_t usual = lease->sms - (*lease->rest ? cut.rest : 0);
      ASSERT_EQ(usual % cut.group, 0u);
      ASSERT_GT(usual, 0u) << "what is left over goes with a group";
      groups += usual / cut.group;
      rests += *lease->rest ? 1 : 0;
      ASSERT_TRUE(cut.rest_is_group || !*lease->rest || usual == cut.groups * cut.group);
    }
    ASSERT_LE(memory, gpu.memory_bytes);
    ASSERT_LE(groups * 100, std::uint64_t{cut.groups} * gpu.sm_percent);
    ASSERT_LE(rests, gpu.sm_percent / 100);
  }
  ASSERT_NO_FATAL_FAILURE(check_apart(leases));
}

// Whether a placement is what was asked for, where it may be.
void check_placed(const ClusterMap& map, const Placement& placed) {
  const HeldLease& lease = placed.lease;
  const auto id = map.node(lease.node);
  ASSERT_TRUE(id);
  const NodeFacts& node = map.facts(*id);
  ASSERT_EQ(node.state, NodeState::kReady);
  ASSERT_LT(lease.gpu, node.gpus.size());
  const GpuFacts& gpu = node.gpus[lease.gpu];
  const Request& request = placed.request;
  ASSERT_TRUE(gpu.usable);
  ASSERT_TRUE(gpu.sm_percent == 100 || request.share_sms);
  ASSERT_TRUE(!request.mode || *request.mode == gpu.mode);
  ASSERT_TRUE(request.node.empty() || request.node == node.name);
  ASSERT_TRUE(request.require.empty() ||
              (node.labels.count("rack") == 1 && node.labels.at("rack") == "1"));
  ASSERT_GE(lease.sms, request.sms);
  ASSERT_EQ(lease.memory_bytes, request.memory_bytes);
  ASSERT_EQ(lease.overhead_bytes, node.overhead_per_lease);
}

// Nobody who waits has room anywhere that is not kept for somebody before it.
void check_waiting(const Scheduler& scheduler) {
  const auto queue = scheduler.queue();
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const Waiting& waiting = *queue[i];
    const Turn turn{waiting.request.priority, waiting.sequence};
    ASSERT_FALSE(scheduler.map().find(waiting.request, turn)) << waiting.request.id;
    ASSERT_EQ(scheduler.ahead(waiting.request.id), i);
    if (i == 0) continue;
    const Turn before{queue[i - 1]->request.priority, queue[i - 1]->sequence};
    ASSERT_TRUE(before.before(turn));
  }
}

class World {
 public:
  explicit World(std::uint64_t seed)
      : random_(seed), scheduler_({.overtaken_max = 3, .keeps_max = 2}) {
    const std::uint64_t nodes = 2 + random_.below(7);
    for (std::size_t i = 0; i < nodes; ++i) {
      EXPECT_TRUE(scheduler_.map().set_node(random_node(random_, i)));
    }
  }

  void step() {
    switch (random_.below(8)) {
      case 0:
      case 1:
      case 2:
        ASSERT_TRUE(scheduler_.submit(random_request(random_, ++number_)));
        break;
      case 3:
      case 4:
        if (!leases_.empty()) release();
        break;
      case 5:
        change_node();
        break;
      case 6:
        resize();
        break;
      case 7:
        if (!scheduler_.queue().empty() && random_.one_in(3)) {
          ASSERT_TRUE(scheduler_.cancel(scheduler_.queue().back()->request.id));
        }
        break;
    }
    for (const Placement& placed : scheduler_.pump()) {
      ASSERT_NO_FATAL_FAILURE(check_placed(scheduler_.map(), placed));
      leases_.push_back(placed.lease.id);
      ++placed_;
    }
    for (const ClusterMap::NodeId id : scheduler_.map().nodes()) {
      ASSERT_NO_FATAL_FAILURE(check_node(scheduler_.map(), id));
    }
    ASSERT_NO_FATAL_FAILURE(check_waiting(scheduler_));
  }

  std::size_t placed() const { return placed_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  void release() {
    std::swap(leases_[random_.below(leases_.size())], leases_.back());
    scheduler_.map().release(leases_.back());
    leases_.pop_back();
  }
  void change_node() {
    const std::string name = "node-" + std::to_string(random_.below(9));
    const auto state = static_cast<NodeState>(random_.below(4));
    scheduler_.map().set_state(name, random_.one_in(2) ? NodeState::kReady : state);
    if (random_.one_in(20)) scheduler_.map().remove_node(name);
    std::erase_if(leases_,
                  [this](const std::string& id) { return scheduler_.map().lease(id) == nullptr; });
  }
  void resize() {
    if (leases_.empty()) return;
    const std::string& id = leases_[random_.below(leases_.size())];
    const auto resized = scheduler_.resize(id, static_cast<std::uint32_t>(1 + random_.below(40)),
                                           1 + random_.below(20 * kGiB));
    ASSERT_TRUE(!resized || scheduler_.map().lease(id)->sms == resized->sms);
  }

  Random random_;
  Scheduler scheduler_;
  std::vector<std::string> leases_;
  std::uint64_t number_ = 0;
  std::size_t placed_ = 0;
};

TEST(PlacementProperty, NothingIsGivenOutTwiceAndNobodyWaitsInVain) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  std::size_t placed = 0;
  for (int run = 0; run < 60; ++run) {
    World world(random.next());
    for (int step = 0; step < 250; ++step) {
      ASSERT_NO_FATAL_FAILURE(world.step()) << "run " << run << " step " << step;
    }
    placed += world.placed();
  }
  EXPECT_GT(placed, 1000u);
}

// The same nodes, leases and request in another order of arrival.
TEST(PlacementProperty, TheAnswerDependsOnTheStateAlone) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  std::size_t compared = 0;
  for (int run = 0; run < 40; ++run) {
    World world(random.next());
    for (int step = 0; step < 80; ++step) ASSERT_NO_FATAL_FAILURE(world.step());
    const ClusterMap& map = world.scheduler().map();
    ClusterMap other;
    auto nodes = map.nodes();
    std::vector<const HeldLease*> leases;
    for (std::size_t i = nodes.size(); i-- > 0;) {
      std::swap(nodes[i], nodes[random.below(i + 1)]);
      ASSERT_TRUE(other.set_node(test_node("gone")));
      ASSERT_TRUE(other.set_node(map.facts(nodes[i])));
      other.remove_node("gone");
      for (const HeldLease* lease : map.leases_on(nodes[i])) leases.push_back(lease);
    }
    for (std::size_t i = leases.size(); i-- > 0;) {
      std::swap(leases[i], leases[random.below(i + 1)]);
      ASSERT_TRUE(other.hold(*leases[i]));
    }
    for (int i = 0; i < 40; ++i) {
      const Request request = random_request(random, 1000000);
      // Before everybody in turn: what is kept is part of the queue.
      const Turn first{kRequestPriorityMax, 1};
      const auto a = map.find(request, first);
      const auto b = other.find(request, first);
      ASSERT_EQ(a.has_value(), b.has_value());
      if (!a) continue;
      ++compared;
      EXPECT_EQ(map.facts(a->node).name, other.facts(b->node).name);
      EXPECT_EQ(a->gpu, b->gpu);
      EXPECT_EQ(a->candidates, b->candidates);
    }
  }
  EXPECT_GT(compared, 50u);
}

TEST(PlacementProperty, TheSameSeedGivesTheSameHistory) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  World a(seed);
  World b(seed);
  for (int step = 0; step < 300; ++step) {
    ASSERT_NO_FATAL_FAILURE(a.step());
    ASSERT_NO_FATAL_FAILURE(b.step());
    ASSERT_EQ(a.placed(), b.placed());
    ASSERT_EQ(a.scheduler().queue().size(), b.scheduler().queue().size());
  }
}

// Small leases come without end and always find room first; each ends after some steps. Whoever
// wants a whole GPU must get it all the same.
TEST(PlacementProperty, NobodyStarvesAmongEquals) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  Scheduler scheduler;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(scheduler.map().set_node(test_node("node-" + std::to_string(i), 2)));
  }
  std::multimap<int, std::string> ends;
  std::set<std::string> large;
  std::size_t large_served = 0;
  for (int step = 0; step < 3000; ++step) {
    while (!ends.empty() && ends.begin()->first <= step) {
      scheduler.map().release(ends.begin()->second);
      ends.erase(ends.begin());
    }
    const std::string id = "lease-" + std::to_string(step);
    const bool whole = step % 100 == 50;
    if (whole) large.insert(id);
    ASSERT_TRUE(scheduler.submit(test_request(id, whole ? 32 : 8)));
    for (const Placement& placed : scheduler.pump()) {
      ends.emplace(step + 5 + static_cast<int>(random.below(30)), placed.lease.id);
      large_served += large.erase(placed.lease.id);
    }
    for (const std::string& one : large) {
      const int since = std::stoi(one.substr(6));
      ASSERT_LT(step - since, 400) << one << ": " << scheduler.explain(one).text;
    }
  }
  EXPECT_GE(large_served, 25u);
}

}  // namespace
}  // namespace flyt::placement
