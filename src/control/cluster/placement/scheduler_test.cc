#include <gtest/gtest.h>

#include "control/cluster/placement/scheduler.h"
#include "control/cluster/placement/testing_facts.h"

namespace flyt::placement {
namespace {

class PlacementTest : public ::testing::Test {
 protected:
  void node(const NodeFacts& facts) {
    const Status status = scheduler_.map().set_node(facts);
    ASSERT_TRUE(status) << status.error().message;
  }

  // "node/gpu" of what is placed at once; empty if it waits.
  std::string ask(const Request& request) {
    const Status status = scheduler_.submit(request);
    EXPECT_TRUE(status) << status.error().message;
    scheduler_.pump();
    return place_of(request.id);
  }
  std::string place_of(const std::string& id) const {
    const HeldLease* lease = scheduler_.map().lease(id);
    return lease == nullptr ? "" : lease->node + "/" + std::to_string(lease->gpu);
  }
  ErrorCode refusal(const Request& request) {
    const Status status = scheduler_.submit(request);
    EXPECT_FALSE(status);
    return status ? ErrorCode::kLost : status.error().code;
  }
  Verdict verdict(const std::string& id, const std::string& node) const {
    for (const NodeAnswer& answer : scheduler_.explain(id).nodes) {
      if (answer.node == node) return answer.judgement.verdict;
    }
    return Verdict::kRoom;
  }

  Scheduler scheduler_;
};

TEST_F(PlacementTest, RoundsUpToWholeGroups) {
  node(test_node("a"));
  ASSERT_EQ(ask(test_request("one", 9)), "a/0");
  EXPECT_EQ(scheduler_.map().lease("one")->sms, 16u);
  ASSERT_EQ(ask(test_request("two", 16)), "a/0");
  EXPECT_EQ(ask(test_request("three", 1)), "");
}

TEST_F(PlacementTest, GivesTheOddGroupToWhoTakesAllOnly) {
  NodeFacts facts = test_node("a");
  facts.gpus[0].groups = {8, 8, 4};
  node(facts);
  EXPECT_EQ(ask(test_request("whole", 17)), "a/0");
  EXPECT_EQ(scheduler_.map().lease("whole")->sms, 20u);
  scheduler_.map().release("whole");
  EXPECT_EQ(ask(test_request("small", 1)), "a/0");
  EXPECT_EQ(ask(test_request("whole", 20)), "");
  EXPECT_EQ(verdict("whole", "a"), Verdict::kNoGroups);
  EXPECT_EQ(ask(test_request("too large", 21)), "");
  EXPECT_EQ(verdict("too large", "a"), Verdict::kTooSmall);
  EXPECT_FALSE(scheduler_.explain("too large").possible);
}

TEST_F(PlacementTest, CountsReserveAndContextsAsMemory) {
  NodeFacts facts = test_node("a");
  facts.gpus[0].reserve_bytes = kGiB;
  facts.overhead_per_lease = kGiB;
  node(facts);
  EXPECT_EQ(ask(test_request("most", 8, 14 * kGiB)), "a/0");
  EXPECT_EQ(ask(test_request("a byte", 8, 1)), "");
  EXPECT_EQ(verdict("a byte", "a"), Verdict::kNoMemory);
  EXPECT_EQ(ask(test_request("more", 8, 14 * kGiB + 1)), "");
  EXPECT_EQ(verdict("more", "a"), Verdict::kTooSmall);
}

TEST_F(PlacementTest, PacksIntoTheSmallestRoomAndSpreadsIntoTheLargest) {
  node(test_node("a", 2));
  node(test_node("b", 2));
  EXPECT_EQ(ask(test_request("one")), "a/0");
  EXPECT_EQ(ask(test_request("two")), "a/0");
  Request spread = test_request("three");
  spread.policy = Policy::kSpread;
  EXPECT_EQ(ask(spread), "b/0");
  spread.id = "four";
  // The node where less is in use, and there the GPU where less is.
  EXPECT_EQ(ask(spread), "b/1");
  // 24 multiprocessors fit three GPUs; a/1 is empty.
  EXPECT_EQ(ask(test_request("five", 24)), "b/0");
}

TEST_F(PlacementTest, PrefersTheOwnHostUntilItIsFull) {
  node(test_node("a"));
  node(test_node("b"));
  Request own = test_request("one", 24);
  own.policy = Policy::kHostFirst;
  own.host = "b";
  EXPECT_EQ(ask(own), "b/0");
  own.id = "two";
  EXPECT_EQ(ask(own), "a/0");
  EXPECT_NE(scheduler_.explain("one").text.find("own host has room"), std::string::npos);
  EXPECT_NE(scheduler_.explain("two").text.find("own host has no room"), std::string::npos);
}

TEST_F(PlacementTest, TakesNothingWhereNothingShallCome) {
  for (const char* name : {"a", "b", "c", "d"}) node(test_node(name));
  scheduler_.map().set_state("a", NodeState::kLost);
  scheduler_.map().set_state("b", NodeState::kDraining);
  scheduler_.map().set_state("c", NodeState::kCordoned);
  Request request = test_request("one");
  request.avoid = {"d"};
  EXPECT_EQ(ask(request), "");
  EXPECT_EQ(verdict("one", "a"), Verdict::kLost);
  EXPECT_EQ(verdict("one", "b"), Verdict::kDraining);
  EXPECT_EQ(verdict("one", "c"), Verdict::kCordoned);
  EXPECT_EQ(verdict("one", "d"), Verdict::kAvoided);
  scheduler_.map().set_state("c", NodeState::kReady);
  EXPECT_EQ(scheduler_.pump().size(), 1u);
  EXPECT_EQ(place_of("one"), "c/0");
}

TEST_F(PlacementTest, HeedsWishes) {
  NodeFacts special = test_node("b", 2);
  special.labels["rack"] = "7";
  special.gpus[1].kind = "other";
  special.gpus[1].mode = GpuMode::kShared;
  node(test_node("a"));
  node(special);
  Request request = test_request("kind");
  request.kind = "other";
  EXPECT_EQ(ask(request), "b/1");
  request = test_request("mode");
  request.mode = GpuMode::kShared;
  EXPECT_EQ(ask(request), "b/1");
  request = test_request("label");
  request.require["rack"] = "7";
  request.policy = Policy::kSpread;
  EXPECT_EQ(ask(request), "b/0");
  request = test_request("pinned");
  request.node = "b";
  request.gpu = 1;
  EXPECT_EQ(ask(request), "b/1");
  request.id = "no such GPU";
  request.gpu = 2;
  EXPECT_EQ(ask(request), "");
  EXPECT_EQ(verdict("no such GPU", "a"), Verdict::kOtherNode);
  EXPECT_EQ(verdict("no such GPU", "b"), Verdict::kNoGpu);
  request = test_request("no such rack");
  request.require["rack"] = "8";
  EXPECT_EQ(ask(request), "");
  EXPECT_EQ(verdict("no such rack", "b"), Verdict::kOtherLabels);
}

TEST_F(PlacementTest, KeepsLeasesApartWhicheverCameFirst) {
  node(test_node("a", 2));
  node(test_node("b", 2));
  Request first = test_request("first");
  first.labels["service"] = "web";
  EXPECT_EQ(ask(first), "a/0");
  Request second = first;
  second.id = "second";
  second.apart = {{"service", Apart::From::kNode}};
  EXPECT_EQ(ask(second), "b/0");
  // It does not ask for it, and is not let in: the second one does.
  Request third = first;
  third.id = "third";
  third.node = "b";
  EXPECT_EQ(ask(third), "");
  EXPECT_EQ(verdict("third", "b"), Verdict::kApart);
  scheduler_.map().release("second");
  EXPECT_EQ(scheduler_.pump().size(), 1u);
  Request fourth = first;
  fourth.id = "fourth";
  fourth.apart = {{"service", Apart::From::kGpu}};
  EXPECT_EQ(ask(fourth), "a/1");
  Request other = test_request("other");
  other.labels["service"] = "database";
  other.apart = {{"service", Apart::From::kNode}};
  EXPECT_EQ(ask(other), "a/0");
}

TEST_F(PlacementTest, OversubscribesMultiprocessorsOnlyOfThoseWhoAgree) {
  NodeFacts facts = test_node("a");
  facts.gpus[0].sm_percent = 150;
  node(facts);
  EXPECT_EQ(ask(test_request("alone", 8)), "");
  EXPECT_EQ(verdict("alone", "a"), Verdict::kOversubscribed);
  Request shared = test_request("one", 32);
  shared.share_sms = true;
  EXPECT_EQ(ask(shared), "a/0");
  EXPECT_NE(scheduler_.explain("one").text.find("21 of 32 when all are busy"), std::string::npos);
  shared.id = "two";
  shared.sms = 16;
  EXPECT_EQ(ask(shared), "a/0");
  shared.id = "three";
  shared.sms = 1;
  EXPECT_EQ(ask(shared), "");
  // Memory is never given out twice.
  scheduler_.map().release("two");
  shared.id = "four";
  shared.memory_bytes = 16 * kGiB;
  EXPECT_EQ(ask(shared), "");
  EXPECT_EQ(verdict("four", "a"), Verdict::kNoMemory);
}

TEST_F(PlacementTest, LeavesUnsharedGpusToThoseWhoNeedThem) {
  node(test_node("a"));
  NodeFacts facts = test_node("b");
  facts.gpus[0].sm_percent = 200;
  node(facts);
  Request shared = test_request("one");
  shared.share_sms = true;
  EXPECT_EQ(ask(shared), "b/0");
  EXPECT_EQ(ask(test_request("two")), "a/0");
}

TEST_F(PlacementTest, StopsAtTheNumberOfLeasesOfANode) {
  NodeFacts facts = test_node("a");
  facts.leases_max = 1;
  node(facts);
  EXPECT_EQ(ask(test_request("one")), "a/0");
  EXPECT_EQ(ask(test_request("two")), "");
  EXPECT_EQ(verdict("two", "a"), Verdict::kLeasesFull);
}

TEST_F(PlacementTest, ServesHigherPrioritiesFirstAndEqualsInOrder) {
  node(test_node("a"));
  ASSERT_EQ(ask(test_request("holder", 32)), "a/0");
  Request request = test_request("low", 16);
  EXPECT_EQ(ask(request), "");
  request.id = "high, later";
  request.priority = 5;
  EXPECT_EQ(ask(request), "");
  request.id = "high, last";
  EXPECT_EQ(ask(request), "");
  EXPECT_EQ(scheduler_.ahead("high, later"), 0u);
  EXPECT_EQ(scheduler_.ahead("high, last"), 1u);
  EXPECT_EQ(scheduler_.ahead("low"), 2u);
  EXPECT_EQ(scheduler_.ahead("nobody"), std::nullopt);
  scheduler_.map().release("holder");
  const auto placed = scheduler_.pump();
  ASSERT_EQ(placed.size(), 2u);
  EXPECT_EQ(placed[0].request.id, "high, later");
  EXPECT_EQ(placed[1].request.id, "high, last");
  EXPECT_EQ(scheduler_.ahead("low"), 0u);
}

TEST_F(PlacementTest, DoesNotHoldUpWhoFits) {
  node(test_node("a"));
  ASSERT_EQ(ask(test_request("holder", 8)), "a/0");
  EXPECT_EQ(ask(test_request("large", 32)), "");
  EXPECT_EQ(ask(test_request("small", 8)), "a/0");
  EXPECT_EQ(scheduler_.waiting("large")->overtaken, 1u);
}

TEST_F(PlacementTest, KeepsAGpuForWhoWasOvertakenTooOften) {
  node(test_node("a"));
  node(test_node("b"));
  ASSERT_EQ(ask(test_request("on a", 24)), "a/0");
  ASSERT_EQ(ask(test_request("on b", 32)), "b/0");
  ASSERT_EQ(ask(test_request("large", 32)), "");
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(ask(test_request("small " + std::to_string(i), 8)), "a/0") << i;
    scheduler_.map().release("small " + std::to_string(i));
  }
  EXPECT_EQ(scheduler_.explain("large").kept, "a GPU 0");
  EXPECT_EQ(ask(test_request("small")), "");
  EXPECT_EQ(verdict("small", "a"), Verdict::kKept);
  Request important = test_request("important");
  important.priority = 1;
  EXPECT_EQ(ask(important), "a/0");
  scheduler_.map().release("important");
  // Another GPU is as good if it comes first, and then nothing is kept any more.
  scheduler_.map().release("on b");
  EXPECT_EQ(scheduler_.pump().size(), 2u);
  EXPECT_EQ(place_of("large"), "b/0");
  EXPECT_EQ(place_of("small"), "a/0");
}

TEST_F(PlacementTest, KeepsAnotherGpuWhenThatNodeIsLost) {
  node(test_node("a"));
  node(test_node("b"));
  ASSERT_EQ(ask(test_request("on a", 24)), "a/0");
  ASSERT_EQ(ask(test_request("on b", 32)), "b/0");
  ASSERT_EQ(ask(test_request("large", 32)), "");
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(ask(test_request("small", 8)), "a/0") << i;
    scheduler_.map().release("small");
  }
  scheduler_.pump();
  ASSERT_EQ(scheduler_.explain("large").kept, "a GPU 0");
  scheduler_.map().remove_node("a");
  EXPECT_EQ(scheduler_.explain("large").kept, "");
  ASSERT_TRUE(scheduler_.submit(test_request("another", 32)));
  scheduler_.pump();
  EXPECT_EQ(scheduler_.explain("large").kept, "b GPU 0");
  EXPECT_TRUE(scheduler_.cancel("large"));
  EXPECT_FALSE(scheduler_.map().use(*scheduler_.map().node("b"))[0].kept);
}

TEST_F(PlacementTest, ResizesWhereTheLeaseIs) {
  node(test_node("a"));
  ASSERT_EQ(ask(test_request("one", 8)), "a/0");
  ASSERT_EQ(ask(test_request("two", 8)), "a/0");
  const auto grown = scheduler_.resize("one", 20, 15 * kGiB);
  ASSERT_TRUE(grown) << grown.error().message;
  EXPECT_EQ(grown->sms, 24u);
  EXPECT_EQ(scheduler_.resize("one", 25, kGiB).error().code, ErrorCode::kLimit);
  EXPECT_EQ(scheduler_.resize("one", 8, 15 * kGiB + 1).error().code, ErrorCode::kLimit);
  EXPECT_EQ(scheduler_.resize("one", 33, kGiB).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(scheduler_.resize("nobody", 8, kGiB).error().code, ErrorCode::kNotFound);
  ASSERT_EQ(ask(test_request("three", 24, 12 * kGiB)), "");
  ASSERT_TRUE(scheduler_.resize("one", 8, kGiB));
  scheduler_.map().release("two");
  EXPECT_EQ(scheduler_.pump().size(), 1u);
}

TEST_F(PlacementTest, RefusesWhatIsNoRequest) {
  node(test_node("a"));
  EXPECT_EQ(refusal(test_request("")), ErrorCode::kInvalid);
  EXPECT_EQ(refusal(test_request(std::string(257, 'x'))), ErrorCode::kInvalid);
  EXPECT_EQ(refusal(test_request("one", 0)), ErrorCode::kInvalid);
  EXPECT_EQ(refusal(test_request("one", 8, 0)), ErrorCode::kInvalid);
  Request request = test_request("one");
  request.priority = 1001;
  EXPECT_EQ(refusal(request), ErrorCode::kInvalid);
  request = test_request("one");
  request.gpu = 0;
  EXPECT_EQ(refusal(request), ErrorCode::kInvalid);
  request = test_request("one");
  request.apart = {{"service", Apart::From::kNode}};
  EXPECT_EQ(refusal(request), ErrorCode::kInvalid);
  request = test_request("one");
  request.avoid.assign(65, "a");
  EXPECT_EQ(refusal(request), ErrorCode::kInvalid);
  request = test_request("one");
  for (int i = 0; i < 65; ++i) request.labels[std::to_string(i)] = "x";
  EXPECT_EQ(refusal(request), ErrorCode::kInvalid);
  ASSERT_EQ(ask(test_request("one")), "a/0");
  EXPECT_EQ(refusal(test_request("one")), ErrorCode::kDenied);
  ASSERT_EQ(ask(test_request("waits", 32)), "");
  EXPECT_EQ(refusal(test_request("waits")), ErrorCode::kDenied);
  // Sizes that overflow when contexts are added.
  EXPECT_EQ(ask(test_request("huge", UINT32_MAX, UINT64_MAX)), "");
}

TEST_F(PlacementTest, RefusesNodesThatContradictThemselves) {
  ClusterMap map;
  EXPECT_FALSE(map.set_node(test_node("")));
  NodeFacts facts = test_node("a", 2);
  facts.gpus[1].index = 0;
  EXPECT_FALSE(map.set_node(facts));
  facts = test_node("a");
  facts.gpus[0].groups = {8, 4, 8};
  EXPECT_FALSE(map.set_node(facts));
  facts.gpus[0].groups = {};
  EXPECT_FALSE(map.set_node(facts));
  facts.gpus[0].groups = {0};
  EXPECT_FALSE(map.set_node(facts));
  facts = test_node("a");
  facts.gpus[0].sm_percent = 99;
  EXPECT_FALSE(map.set_node(facts));
  facts = test_node("a", 65);
  EXPECT_FALSE(map.set_node(facts));
  EXPECT_TRUE(map.nodes().empty());
}

NodeFacts hopper_node(const std::string& name) {
  NodeFacts facts = test_node(name, 0);
  facts.gpus = {test_hopper(0)};
  return facts;
}

TEST_F(PlacementTest, HasRoomForTwoHalvesOfAChipWithALargerLastGroup) {
  node(hopper_node("a"));
  ASSERT_EQ(ask(test_request("one", 64)), "a/0");
  ASSERT_EQ(ask(test_request("two", 64)), "a/0");
  EXPECT_EQ(scheduler_.map().lease("one")->sms, 64u);
  EXPECT_EQ(scheduler_.map().lease("two")->sms, 68u);
  const auto use = scheduler_.map().use(*scheduler_.map().node("a"))[0];
  EXPECT_EQ(use.groups, 16u);
  EXPECT_EQ(use.groups_given, 16u);
  EXPECT_EQ(use.sms_given, 132u);
  EXPECT_EQ(ask(test_request("three", 8)), "");
  ASSERT_TRUE(scheduler_.map().release("one"));
  scheduler_.pump();
  EXPECT_EQ(place_of("three"), "a/0");
  EXPECT_EQ(scheduler_.map().lease("three")->sms, 8u);
}

TEST_F(PlacementTest, HasRoomForFourQuarters) {
  node(hopper_node("a"));
  std::uint32_t sum = 0;
  for (const char* id : {"one", "two", "three", "four"}) {
    ASSERT_EQ(ask(test_request(id, 32)), "a/0");
    sum += scheduler_.map().lease(id)->sms;
  }
  EXPECT_EQ(sum, 132u);
}

TEST_F(PlacementTest, SaysHowManyGroupsAreFree) {
  node(hopper_node("a"));
  ASSERT_EQ(ask(test_request("one", 100)), "a/0");
  EXPECT_EQ(scheduler_.map().lease("one")->sms, 100u) << "11 groups and the last one";
  EXPECT_EQ(ask(test_request("two", 40)), "");
  EXPECT_EQ(scheduler_.explain("two").nodes[0].text,
            "GPU 0 has 4 groups and 127 GiB free; it needs 5 groups and 1 GiB");
}

TEST_F(PlacementTest, KnowsWhichLeaseHasTheLastGroup) {
  NodeFacts facts = hopper_node("a");
  node(facts);
  ASSERT_EQ(ask(test_request("one", 68)), "a/0");
  ASSERT_EQ(ask(test_request("two", 64)), "a/0");
  // Until it has changed it holds both.
  const auto smaller = scheduler_.map().resized("one", 8, kGiB);
  ASSERT_TRUE(smaller);
  EXPECT_EQ(smaller->rest, false);
  EXPECT_EQ(scheduler_.map().changing(*smaller).sms, 68u);
  ASSERT_TRUE(scheduler_.map().hold(*smaller));
  const auto larger = scheduler_.map().resized("two", 76, kGiB);
  ASSERT_TRUE(larger);
  EXPECT_EQ(larger->sms, 76u);
  EXPECT_EQ(larger->rest, true);
  EXPECT_EQ(scheduler_.map().changing(*larger).rest, true);
  // A lease of a node that told of no such group: 72 are 9 of 8.
  ASSERT_TRUE(scheduler_.map().hold({.id = "old", .node = "a", .gpu = 0, .sms = 72}));
  EXPECT_EQ(scheduler_.map().use(*scheduler_.map().node("a"))[0].sms_given, 8u + 64u + 72u);
}

TEST_F(PlacementTest, GivesAnOddLastGroupThatIsNoneWithTheWholeGpuOnly) {
  NodeFacts facts = hopper_node("a");
  facts.gpus[0].rest_is_group = false;
  node(facts);
  ASSERT_EQ(ask(test_request("one", 68)), "a/0");
  EXPECT_EQ(scheduler_.map().lease("one")->sms, 72u);
  EXPECT_EQ(ask(test_request("two", 64)), "");
  // The node's manager is renewed.
  ASSERT_TRUE(scheduler_.map().release("one"));
  facts.gpus[0].rest_is_group = true;
  node(facts);
  scheduler_.pump();
  ASSERT_EQ(ask(test_request("three", 68)), "a/0");
  EXPECT_EQ(scheduler_.map().lease("three")->sms, 68u);
}

TEST_F(PlacementTest, TakesWhatANodeHoldsAsItIs) {
  node(test_node("a"));
  HeldLease lease{.id = "more than there is", .node = "a", .gpu = 0, .sms = 1000};
  lease.memory_bytes = UINT64_MAX;
  lease.overhead_bytes = UINT64_MAX;
  ASSERT_TRUE(scheduler_.map().hold(lease));
  EXPECT_EQ(ask(test_request("one", 1, 1)), "");
  lease.node = "nowhere";
  EXPECT_EQ(scheduler_.map().hold(lease).error().code, ErrorCode::kNotFound);
  lease.node = "a";
  lease.gpu = 9;
  ASSERT_TRUE(scheduler_.map().hold(lease));
  scheduler_.pump();
  EXPECT_EQ(place_of("one"), "a/0");
}

TEST_F(PlacementTest, KeepsLeasesWhenANodeIsToldAnew) {
  node(test_node("a"));
  ASSERT_EQ(ask(test_request("one", 24)), "a/0");
  node(test_node("a", 2, 8));
  EXPECT_EQ(scheduler_.map().use(*scheduler_.map().node("a"))[0].groups_given, 3u);
  EXPECT_EQ(ask(test_request("two", 48)), "a/1");
  EXPECT_TRUE(scheduler_.map().remove_node("a"));
  EXPECT_EQ(scheduler_.map().lease("one"), nullptr);
  EXPECT_FALSE(scheduler_.map().remove_node("a"));
}

TEST_F(PlacementTest, WaitsOnAfterARestartInTheSameOrder) {
  node(test_node("a"));
  ASSERT_TRUE(scheduler_.resume({.request = test_request("second", 32), .sequence = 9}));
  ASSERT_TRUE(
      scheduler_.resume({.request = test_request("first", 32), .sequence = 7, .overtaken = 3}));
  EXPECT_FALSE(scheduler_.resume({.request = test_request("third"), .sequence = 9}));
  EXPECT_FALSE(scheduler_.resume({.request = test_request("third"), .sequence = 0}));
  ASSERT_TRUE(scheduler_.submit(test_request("last", 32)));
  const auto placed = scheduler_.pump();
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0].lease.id, "first");
  EXPECT_EQ(scheduler_.queue().back()->request.id, "last");
  EXPECT_EQ(scheduler_.queue().back()->sequence, 10u);
}

TEST_F(PlacementTest, SaysWhyItWaits) {
  node(test_node("a"));
  node(test_node("b"));
  scheduler_.map().set_state("b", NodeState::kLost);
  ASSERT_EQ(ask(test_request("one", 24, 12 * kGiB)), "a/0");
  ASSERT_EQ(ask(test_request("two", 16, 8 * kGiB)), "");
  const Explanation told = scheduler_.explain("two");
  EXPECT_EQ(told.state, Explanation::State::kWaiting);
  EXPECT_TRUE(told.possible);
  EXPECT_EQ(told.text,
            "waiting for a GPU: 0 ahead of it; 2 nodes: 1 with too little memory and too few groups"
            " free, 1 lost");
  ASSERT_EQ(told.nodes.size(), 2u);
  EXPECT_EQ(told.nodes[0].text, "GPU 0 has 1 group and 4 GiB free; it needs 2 groups and 8 GiB");
  EXPECT_EQ(told.nodes[1].text, "the node is lost");
  EXPECT_EQ(scheduler_.explain("nobody").state, Explanation::State::kUnknown);
  EXPECT_EQ(scheduler_.explain("one").text,
            "a GPU 0, 24 multiprocessors, 12 GiB: pack: the one with least left over; 1 GPU had"
            " room");
  EXPECT_EQ(scheduler_.what_if(test_request("three")).text, "a GPU 0 has room");
  EXPECT_EQ(scheduler_.what_if(test_request("three", 32)).state, Explanation::State::kWaiting);
}

TEST_F(PlacementTest, ForgetsWhoDoesNotWaitAnyMore) {
  node(test_node("a"));
  ASSERT_EQ(ask(test_request("one", 32)), "a/0");
  ASSERT_EQ(ask(test_request("two", 32)), "");
  EXPECT_TRUE(scheduler_.cancel("two"));
  EXPECT_FALSE(scheduler_.cancel("two"));
  scheduler_.map().release("one");
  EXPECT_TRUE(scheduler_.pump().empty());
  EXPECT_TRUE(scheduler_.queue().empty());
}

TEST(SchedulerLimits, RefusesToLetTooManyWait) {
  Scheduler scheduler({.waiting_max = 1});
  ASSERT_TRUE(scheduler.submit(test_request("one")));
  EXPECT_EQ(scheduler.submit(test_request("two")).error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace flyt::placement
