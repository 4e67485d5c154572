#include "control/node/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "control/node/inventory.h"

namespace flyt::node {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr std::int64_t kNow = 1'000'000;

Gpu gpu(std::uint32_t index, std::uint32_t sms, std::uint64_t memory) {
  Gpu gpu{.index = index, .name = "a GPU", .uuid = "GPU-" + std::to_string(index)};
  gpu.groups = groups_of(sms, 8, UINT32_MAX);
  gpu.memory_bytes = memory;
  return gpu;
}

LeaseRequest request(std::uint32_t sms, std::uint64_t memory, std::string name = "a") {
  return {.name = std::move(name), .sms = sms, .memory_bytes = memory};
}

Lease lease_of(const std::string& name, const Grant& grant, std::uint32_t asked) {
  Lease lease{.id = "id-" + name, .name = name, .grant = grant};
  lease.sms_asked = asked;
  return lease;
}

class PlannerTest : public testing::Test {
 protected:
  ErrorCode refusal(const LeaseRequest& wanted) {
    const auto grant = planner_.place(wanted, leases_, kNow);
    EXPECT_FALSE(grant);
    return grant ? ErrorCode::kSystem : grant.error().code;
  }
  void place(const LeaseRequest& wanted) {
    const auto grant = planner_.place(wanted, leases_, kNow);
    ASSERT_TRUE(grant) << grant.error().message;
    leases_.push_back(lease_of(wanted.name, *grant, wanted.sms));
  }
  Planner planner_{{gpu(0, 32, 8 * kGiB), gpu(1, 64, 16 * kGiB)}, {kGiB, 4}};
  std::vector<Lease> leases_;
};

TEST_F(PlannerTest, GrantsWholeGroupsAndKeepsTheOverheadBack) {
  const auto grant = planner_.place(request(10, 4 * kGiB), leases_, kNow);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->gpu, 0u);
  EXPECT_EQ(grant->sms, 16u);
  EXPECT_EQ(grant->memory_bytes, 4 * kGiB);
  EXPECT_EQ(grant->overhead_bytes, kGiB);
}

TEST_F(PlannerTest, RefusesWhatCouldNeverBe) {
  EXPECT_EQ(refusal(request(0, kGiB)), ErrorCode::kInvalid);
  EXPECT_EQ(refusal(request(8, 0)), ErrorCode::kInvalid);
  EXPECT_EQ(refusal(request(65, kGiB)), ErrorCode::kInvalid);
  // The quota alone would fit, with its overhead it does not.
  EXPECT_EQ(refusal(request(8, 16 * kGiB)), ErrorCode::kInvalid);
  EXPECT_EQ(refusal(request(UINT32_MAX, UINT64_MAX)), ErrorCode::kInvalid);
  LeaseRequest unknown = request(8, kGiB);
  unknown.gpu = 2;
  EXPECT_EQ(refusal(unknown), ErrorCode::kInvalid);
  LeaseRequest late = request(8, kGiB);
  late.expires_at = kNow;
  EXPECT_EQ(refusal(late), ErrorCode::kInvalid);
  LeaseRequest shared = request(8, kGiB);
  shared.mode = Mode::kShared;
  EXPECT_EQ(refusal(shared), ErrorCode::kInvalid);
  LeaseRequest important = request(8, kGiB);
  important.priority = 1001;
  EXPECT_EQ(refusal(important), ErrorCode::kInvalid);
}

TEST_F(PlannerTest, RefusesBadNamesAndLabels) {
  for (const std::string& name : {std::string(), std::string("a b"), std::string("-a"),
                                  std::string("a/b"), std::string("a\0b", 3), std::string(65, 'a'),
                                  std::string("../x"), std::string("\xc3\xa4")}) {
    EXPECT_EQ(refusal(request(8, kGiB, name)), ErrorCode::kInvalid) << name;
  }
  LeaseRequest labelled = request(8, kGiB);
  labelled.labels["team"] = "line\nbreak";
  EXPECT_EQ(refusal(labelled), ErrorCode::kInvalid);
  labelled.labels = {{"", "x"}};
  EXPECT_EQ(refusal(labelled), ErrorCode::kInvalid);
  labelled.labels.clear();
  for (int i = 0; i < 65; ++i) labelled.labels["k" + std::to_string(i)] = "v";
  EXPECT_EQ(refusal(labelled), ErrorCode::kInvalid);
}

TEST_F(PlannerTest, SaysThatItIsFullOnlyWhereItCouldBe) {
  place(request(32, kGiB, "first"));
  place(request(64, kGiB, "second"));
  EXPECT_EQ(refusal(request(8, kGiB, "third")), ErrorCode::kLimit);
  EXPECT_EQ(refusal(request(80, kGiB, "third")), ErrorCode::kInvalid);
}

TEST_F(PlannerTest, RefusesANameThatIsTaken) {
  place(request(8, kGiB, "a"));
  EXPECT_EQ(refusal(request(8, kGiB, "a")), ErrorCode::kDenied);
  EXPECT_EQ(refusal(request(8, kGiB, "id-a")), ErrorCode::kDenied);
}

TEST_F(PlannerTest, StopsAtTheNumberOfLeases) {
  for (const char* name : {"a", "b", "c", "d"}) place(request(8, kGiB, name));
  EXPECT_EQ(refusal(request(8, kGiB, "e")), ErrorCode::kLimit);
}

TEST_F(PlannerTest, ResizesWithinItsGpu) {
  place(request(8, 2 * kGiB, "a"));
  place(request(8, 2 * kGiB, "b"));
  const auto grown = planner_.resize(leases_[0], {.sms = 24, .memory_bytes = 4 * kGiB}, leases_);
  ASSERT_TRUE(grown);
  EXPECT_EQ(grown->sms, 24u);
  EXPECT_EQ(grown->groups, (std::vector<std::uint32_t>{0, 2, 3}));
  // 8 GiB: b holds 2 and 1, a's own overhead is 1.
  const auto most = planner_.resize(leases_[0], {.memory_bytes = 4 * kGiB}, leases_);
  EXPECT_TRUE(most);
  EXPECT_FALSE(planner_.resize(leases_[0], {.memory_bytes = 4 * kGiB + 1}, leases_));
  EXPECT_FALSE(planner_.resize(leases_[0], {.sms = 32}, leases_));
  EXPECT_FALSE(planner_.resize(leases_[0], {.sms = 0}, leases_));
  EXPECT_FALSE(planner_.resize(leases_[0], {}, leases_));
}

// What must hold after every step, whatever was asked for.
void check_promises(const Planner& planner, const std::vector<Lease>& leases) {
  std::set<std::string> names;
  for (const Gpu& gpu : planner.gpus()) {
    std::vector<std::uint64_t> holders(gpu.groups.size());
    std::uint64_t memory = gpu.reserve_bytes;
    for (const Lease& lease : leases) {
      if (lease.grant.gpu != gpu.index) continue;
      std::uint32_t sms = 0;
      std::set<std::uint32_t> taken;
      for (const std::uint32_t group : lease.grant.groups) {
        ASSERT_LT(group, gpu.groups.size());
        ASSERT_TRUE(taken.insert(group).second) << "group " << group << " is held twice";
        ++holders[group];
        sms += gpu.groups[group];
      }
      ASSERT_EQ(sms, lease.grant.sms);
      ASSERT_GE(sms, lease.sms_asked);
      memory += lease.grant.memory_bytes + lease.grant.overhead_bytes;
    }
    ASSERT_LE(memory, gpu.memory_bytes);
    std::uint64_t given = 0;
    for (const std::uint64_t count : holders) {
      given += count;
      ASSERT_LE(count, gpu.sm_percent == 100 ? 1u : UINT32_MAX);
    }
    ASSERT_LE(given, gpu.groups.size() * gpu.sm_percent / 100);
  }
  for (const Lease& lease : leases) ASSERT_TRUE(names.insert(lease.name).second);
}

void random_step(const Planner& planner, Random& random, std::vector<Lease>& leases) {
  const auto sms = static_cast<std::uint32_t>(random.below(80));
  const std::uint64_t memory = random.below(20 * kGiB);
  const std::uint64_t kind = random.below(4);
  if (kind < 2) {
    LeaseRequest wanted = request(sms, memory, "l" + std::to_string(random.below(40)));
    if (random.one_in(2)) wanted.gpu = static_cast<std::uint32_t>(random.below(4));
    if (const auto grant = planner.place(wanted, leases, kNow)) {
      leases.push_back(lease_of(wanted.name, *grant, sms));
    }
  } else if (!leases.empty()) {
    Lease& lease = leases[random.below(leases.size())];
    if (kind == 2) {
      ResizeRequest wanted;
      if (random.one_in(2)) wanted.sms = sms;
      if (random.one_in(2)) wanted.memory_bytes = memory;
      if (const auto grant = planner.resize(lease, wanted, leases)) {
        lease.grant = *grant;
        lease.sms_asked = wanted.sms.value_or(lease.sms_asked);
      }
    } else {
      std::swap(lease, leases.back());
      leases.pop_back();
    }
  }
}

TEST_F(PlannerTest, GathersGroupsThatLieApart) {
  place(request(8, kGiB, "a"));
  place(request(8, kGiB, "b"));
  place(request(8, kGiB, "c"));
  ResizeRequest more;
  more.sms = 16;
  const auto grown = planner_.resize(leases_[0], more, leases_);
  ASSERT_TRUE(grown);
  EXPECT_EQ(grown->groups, (std::vector<std::uint32_t>{0, 3}));
  leases_[0].grant = *grown;
  // There is no place side by side as long as b is there; c has nothing to gather.
  EXPECT_EQ(planner_.gather(leases_[0], leases_).error().code, ErrorCode::kLimit);
  EXPECT_EQ(planner_.gather(leases_[2], leases_).error().code, ErrorCode::kLimit);
  leases_.erase(leases_.begin() + 1);
  const auto gathered = planner_.gather(leases_[0], leases_);
  ASSERT_TRUE(gathered);
  EXPECT_EQ(gathered->groups, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(gathered->sms, 16u);
}

TEST_F(PlannerTest, SharesGroupsOnlyWhereThatIsWanted) {
  std::vector<Gpu> gpus = {gpu(0, 32, 8 * kGiB)};
  gpus[0].sm_percent = 200;
  const Planner planner(gpus, {0, 10});
  std::vector<Lease> leases;
  for (const char* name : {"a", "b"}) {
    const auto grant = planner.place(request(32, 3 * kGiB, name), leases, kNow);
    ASSERT_TRUE(grant) << grant.error().message;
    EXPECT_EQ(grant->sms, 32u);
    leases.push_back(lease_of(name, *grant, 32));
  }
  // All is given out twice; and memory only once, whoever shares.
  EXPECT_EQ(planner.place(request(8, kGiB, "c"), leases, kNow).error().code, ErrorCode::kLimit);
  const auto smaller = planner.resize(leases[0], {.sms = 8}, leases);
  ASSERT_TRUE(smaller);
  leases[0].grant = *smaller;
  EXPECT_TRUE(planner.place(request(8, 2 * kGiB, "c"), leases, kNow));
  EXPECT_EQ(planner.place(request(8, 3 * kGiB, "c"), leases, kNow).error().code, ErrorCode::kLimit);
  EXPECT_EQ(planner.resize(leases[1], {.memory_bytes = 6 * kGiB}, leases).error().code,
            ErrorCode::kLimit);
}

TEST(PlannerProperty, GroupsAreDisjointAndMemoryIsNeverOvercommitted) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int run = 0; run < 50; ++run) {
    std::vector<Gpu> gpus = {gpu(0, 132, 64 * kGiB), gpu(1, 20, 8 * kGiB), gpu(2, 7, 4 * kGiB)};
    gpus[0].groups = groups_of(132, 8, 15);
    gpus[0].rest_is_group = run % 4 >= 2;
    gpus[0].reserve_bytes = kGiB;
    for (Gpu& one : gpus) {
      if (run % 2 != 0) one.sm_percent = static_cast<std::uint32_t>(100 + random.below(300));
    }
    const Planner planner(std::move(gpus), {random.below(2 * kGiB), 30});
    std::vector<Lease> leases;
    std::size_t most = 0;
    for (int step = 0; step < 400; ++step) {
      random_step(planner, random, leases);
      ASSERT_NO_FATAL_FAILURE(check_promises(planner, leases)) << "run " << run;
      most = std::max(most, leases.size());
    }
    EXPECT_GT(most, 2u);
  }
}

class HopperTest : public testing::Test {
 protected:
  static Planner planner(bool rest_is_group = true) {
    Gpu one{.index = 0, .name = "an H200", .uuid = "GPU-0"};
    one.groups = groups_of(132, 8, 15);
    one.rest_is_group = rest_is_group;
    one.memory_bytes = 128 * kGiB;
    return Planner({one}, {kGiB, 8});
  }
  void place(const std::string& name, std::uint32_t sms) {
    const auto grant = planner().place(request(sms, kGiB, name), leases_, kNow);
    ASSERT_TRUE(grant) << grant.error().message;
    leases_.push_back(lease_of(name, *grant, sms));
  }
  std::vector<Lease> leases_;
};

TEST_F(HopperTest, HasRoomForTwoHalves) {
  place("a", 64);
  place("b", 64);
  EXPECT_EQ(leases_[0].grant.sms, 64u);
  EXPECT_EQ(leases_[1].grant.sms, 68u);
  EXPECT_EQ(leases_[1].grant.groups.back(), 15u);
  EXPECT_EQ(planner().place(request(1, kGiB, "c"), leases_, kNow).error().code, ErrorCode::kLimit);
}

TEST_F(HopperTest, KeepsGroupsWhereMemoryAloneChanges) {
  place("a", 64);
  place("b", 64);
  leases_.erase(leases_.begin());
  const Lease& b = leases_[0];
  for (const ResizeRequest& wish : {ResizeRequest{.sms = {}, .memory_bytes = 2 * kGiB},
                                    ResizeRequest{.sms = 64, .memory_bytes = 2 * kGiB}}) {
    const auto grant = planner().resize(b, wish, leases_);
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->groups, b.grant.groups);
    EXPECT_EQ(grant->sms, 68u);
  }
  EXPECT_EQ(planner().resize(b, {.sms = 63}, leases_)->sms, 64u);
}

TEST_F(HopperTest, GathersBesideTheLastGroup) {
  Lease apart{.id = "a", .name = "a", .grant = {.gpu = 0, .groups = {1, 5, 15}, .sms = 28}};
  leases_ = {apart};
  const auto grant = planner().gather(apart, leases_);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->groups, (std::vector<std::uint32_t>{13, 14, 15}));
  EXPECT_EQ(grant->sms, 28u);
}

// Servers outlive a renewed node manager.
TEST_F(HopperTest, AsksNoOlderServerForTheLastGroup) {
  place("a", 64);
  place("b", 8);
  leases_[1].takes_rest = false;
  EXPECT_EQ(planner().resize(leases_[1], {.sms = 20}, leases_)->sms, 24u);
  EXPECT_EQ(planner().resize(leases_[1], {.sms = 64}, leases_).error().code, ErrorCode::kLimit);
  leases_[1].takes_rest = true;
  EXPECT_EQ(planner().resize(leases_[1], {.sms = 64}, leases_)->sms, 68u);
  leases_.erase(leases_.begin());
  leases_[0].takes_rest = false;
  EXPECT_EQ(planner().resize(leases_[0], {.sms = 132}, leases_)->groups.size(), 16u);
}

TEST_F(HopperTest, GivesWhatIsNoGroupWithTheWholeGpuOnly) {
  const auto grant = planner(false).place(request(68, kGiB), {}, kNow);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->sms, 72u);
}

TEST(Groups, AreCutAsTheDriverSays) {
  EXPECT_EQ(groups_of(16, 8, 2), (std::vector<std::uint32_t>{8, 8}));
  EXPECT_EQ(groups_of(20, 8, 9), (std::vector<std::uint32_t>{8, 8, 4}));
  EXPECT_EQ(groups_of(132, 8, 15).back(), 12u);
  EXPECT_EQ(groups_of(4, 8, 1), (std::vector<std::uint32_t>{4}));
}

TEST_F(PlannerTest, PlacesNothingOnAGpuThatHasFailed) {
  const GpuFailures failed = {{0, "it is lost"}};
  LeaseRequest wanted = request(8, kGiB);
  const auto elsewhere = planner_.place(wanted, leases_, kNow, failed);
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(1U, elsewhere->gpu);
  wanted.gpu = 0;
  const auto refused = planner_.place(wanted, leases_, kNow, failed);
  ASSERT_FALSE(refused);
  EXPECT_EQ(ErrorCode::kLimit, refused.error().code);
  EXPECT_NE(refused.error().message.find("GPU 0 has failed: it is lost"), std::string::npos);
}

}  // namespace
}  // namespace flyt::node
