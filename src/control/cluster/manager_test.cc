#include "control/cluster/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "control/cluster/records.h"
#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using testing::FakeCluster;
using testing::FakeNode;
using ::testing::HasSubstr;

Config quick() {
  Config config;
  config.policy = "pack";
  return config;
}

std::vector<std::string> kinds(FakeCluster& cluster) {
  std::vector<std::string> all;
  for (const auto& event : cluster.manager().events(0)) all.push_back(event.kind());
  return all;
}

TEST(ClusterManager, GivesAVmItsVirtualGpuAndATokenForIt) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a");
  const auto gpu = cluster.want("a");
  EXPECT_EQ(gpu.phase(), v1::PHASE_READY);
  EXPECT_EQ(gpu.node(), "n1");
  EXPECT_EQ(gpu.sms_granted(), 8u);
  EXPECT_EQ(gpu.urls_size(), 1);
  v1::GpuRequest request;
  request.set_vm("a");
  request.set_token(true);
  EXPECT_THAT(cluster.manager().request(request)->token(), HasSubstr("token of a."));
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, AsksANodeOnlyForWhatIsOnDisk) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.disk_full = true;
  v1::GpuRequest request;
  request.set_vm("a");
  EXPECT_EQ(cluster.manager().request(request).error().code, ErrorCode::kSystem);
  cluster.work();
  EXPECT_TRUE(cluster.nodes.at("n1").leases.empty());
  EXPECT_FALSE(cluster.manager().writable());
  cluster.disk_full = false;
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_READY);
  EXPECT_TRUE(cluster.manager().writable());
}

TEST(ClusterManager, ManyWhoAskAtOnceAreAllAnswered) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  node.gpus = 4;
  cluster.report();
  // Sixteen have room.
  for (int i = 0; i < 20; ++i) cluster.add_vm("vm" + std::to_string(i));
  std::vector<v1::Phase> phases(20);
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&cluster, &phases, i] {
      v1::GpuRequest request;
      request.set_vm("vm" + std::to_string(i));
      for (int turn = 0; turn < 20; ++turn) {
        const auto gpu = cluster.manager().request(request);
        if (gpu) phases[static_cast<std::size_t>(i)] = gpu->phase();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(phases.begin(), phases.end(), v1::PHASE_STARTING), 16);
  EXPECT_EQ(std::count(phases.begin(), phases.end(), v1::PHASE_WAITING), 4);
  EXPECT_EQ(cluster.manager().counters().placed, 16u);
  // What was answered is on disk.
  cluster.start();
  cluster.report();
  cluster.work();
  EXPECT_EQ(cluster.manager().describe().leases(), 16u);
  EXPECT_EQ(cluster.manager().describe().waiting(), 4u);
  EXPECT_EQ(cluster.audit(), "");
}

TEST(ClusterManager, NobodyOfManyIsToldOfWhatCouldNotBeWritten) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.report();
  for (int i = 0; i < 8; ++i) cluster.add_vm("vm" + std::to_string(i));
  cluster.disk_full = true;
  std::vector<std::thread> threads;
  std::atomic<int> refused = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&cluster, &refused, i] {
      v1::GpuRequest request;
      request.set_vm("vm" + std::to_string(i));
      const auto gpu = cluster.manager().request(request);
      if (!gpu && gpu.error().code == ErrorCode::kSystem) ++refused;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 8);
  EXPECT_EQ(cluster.manager().describe().waiting(), 0u);
  cluster.disk_full = false;
  EXPECT_EQ(cluster.want("vm0").phase(), v1::PHASE_READY);
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, ManyWhoWaitedAreWrittenPartByPart) {
  FakeCluster cluster(quick());
  for (int i = 0; i < 30; ++i) cluster.add_vm("vm" + std::to_string(i));
  for (int i = 0; i < 30; ++i) cluster.want("vm" + std::to_string(i));
  EXPECT_EQ(cluster.manager().describe().waiting(), 30u);
  cluster.add_node("n1").gpus = 8;
  cluster.report();
  cluster.work();
  EXPECT_EQ(cluster.manager().describe().leases(), 30u);
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, EachThatBeginsHasALaterEpoch) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  cluster.add_vm("a");
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const auto reply = cluster.manager().report(node.report());
    ASSERT_TRUE(reply.ok());
    EXPECT_GT(reply->epoch(), last);
    last = reply->epoch();
    cluster.start();
  }
  cluster.report();
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_READY);
  EXPECT_GT(node.epoch, last) << "it says who it is";
  // An older one changes nothing any more, and is not taken for a node without room.
  node.epoch = UINT64_MAX;
  v1::ResizeVmRequest resize;
  resize.set_vm("a");
  resize.set_sms(16);
  EXPECT_EQ(cluster.manager().resize(resize).error().code, ErrorCode::kUnsupported);
  ASSERT_TRUE(cluster.manager().release("a", "a test").ok());
  cluster.work();
  EXPECT_EQ(node.leases.size(), 1u);
  EXPECT_EQ(cluster.audit(), "");
}

TEST(ClusterManager, WhoFindsNoRoomWaitsInTurn) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  for (const char* vm : {"a", "b", "c"}) cluster.add_vm(vm, 32);
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_READY);
  EXPECT_EQ(cluster.want("b").ahead(), 0u);
  const auto last = cluster.want("c");
  EXPECT_EQ(last.phase(), v1::PHASE_WAITING);
  EXPECT_EQ(last.ahead(), 1u);
  EXPECT_EQ(last.reason(), "no GPU has room for it");
  EXPECT_THAT(cluster.manager().explain("c")->lines(0), HasSubstr("1 ahead"));
  ASSERT_TRUE(cluster.manager().release("a", "done").ok());
  cluster.work();
  EXPECT_EQ(cluster.gpu("b").phase(), v1::PHASE_READY);
  EXPECT_EQ(cluster.gpu("c").ahead(), 0u);
  EXPECT_EQ(cluster.audit(), "");
}

TEST(ClusterManager, WhoCanNeverHaveRoomIsToldSo) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a", 64);
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_WAITING);
  EXPECT_EQ(cluster.gpu("a").reason(), "no GPU of the cluster could ever take it");
}

TEST(ClusterManager, AWishThatNobodyRenewsIsDropped) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a", 32);
  cluster.add_vm("b", 32);
  cluster.add_vm("c", 32);
  cluster.nodes.at("n1").leases["foreign"].set_sms_granted(32);
  cluster.nodes.at("n1").leases["foreign"].set_id("f");
  cluster.report();
  cluster.want("a");
  cluster.want("b");
  ASSERT_TRUE(cluster.manager().watch("b", true).ok());
  cluster.live(40);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_NONE);
  EXPECT_EQ(cluster.gpu("b").phase(), v1::PHASE_WAITING);
  ASSERT_TRUE(cluster.manager().watch("b", false).ok());
  cluster.live(40);
  EXPECT_EQ(cluster.gpu("b").phase(), v1::PHASE_NONE);
}

TEST(ClusterManager, CountsLeasesThatAreNotItsOwn) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  node::v1::Lease& foreign = node.leases["somebody"];
  foreign.set_id("x");
  foreign.set_name("somebody");
  foreign.set_sms_granted(24);
  foreign.set_memory_bytes(1 << 20);
  cluster.report();
  cluster.add_vm("a", 16);
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_WAITING);
  EXPECT_EQ(cluster.manager().leases("", "")->leases(0).state(), "foreign");
  node.leases.clear();
  cluster.live(1);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
}

TEST(ClusterManager, AnUnusedVirtualGpuIsTakenBackAfterItsGrace) {
  Config config = quick();
  config.grace_seconds = 20;
  FakeCluster cluster(config);
  FakeNode& node = cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  node.leases.begin()->second.set_sessions(1);
  cluster.live(60);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  node.leases.begin()->second.set_sessions(0);
  cluster.live(15);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  cluster.live(15);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_NONE);
  EXPECT_TRUE(node.leases.empty());
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, AProgramThatHasJustBegunKeepsItsVirtualGpu) {
  Config config = quick();
  config.grace_seconds = 20;
  FakeCluster cluster(config);
  FakeNode& node = cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  cluster.live(19);
  // Its session is not in any report yet.
  node.leases.begin()->second.set_sessions(1);
  cluster.clock.pass(std::chrono::seconds(5));
  cluster.manager().tick();
  cluster.work();
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  EXPECT_EQ(node.leases.size(), 1u);
}

TEST(ClusterManager, ALostNodesVmsAreToldAndPlacedAnew) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a");
  const auto before = cluster.want("a");
  cluster.add_node("n2");
  cluster.nodes.at("n1").up = false;
  cluster.live(12);
  const auto after = cluster.gpu("a");
  EXPECT_EQ(after.phase(), v1::PHASE_READY);
  EXPECT_EQ(after.node(), "n2");
  EXPECT_GT(after.generation(), before.generation());
  EXPECT_EQ(cluster.audit(), "");
  // The old one ends as soon as its node can be asked.
  EXPECT_EQ(cluster.nodes.at("n1").leases.size(), 1u);
  cluster.nodes.at("n1").up = true;
  cluster.live(12);
  EXPECT_TRUE(cluster.nodes.at("n1").leases.empty());
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, ANodeThatComesBackInTimeKeepsItsVms) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a");
  const auto before = cluster.want("a");
  cluster.nodes.at("n1").up = false;
  cluster.live(12);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_WAITING);
  EXPECT_THAT(cluster.gpu("a").reason(), HasSubstr("n1 is lost"));
  EXPECT_THAT(cluster.manager().problems(), ::testing::Contains("node n1 is lost"));
  cluster.nodes.at("n1").up = true;
  cluster.live(1);
  const auto after = cluster.gpu("a");
  EXPECT_EQ(after.phase(), v1::PHASE_READY);
  EXPECT_EQ(after.generation(), before.generation());
  EXPECT_EQ(after.lease_id(), before.lease_id());
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, AVmWhoseGpuHasFailedGetsAnotherOne) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  node.gpus = 2;
  cluster.add_vm("a", 16);
  cluster.add_vm("b", 16);
  const auto before = cluster.want("a");
  ASSERT_EQ(before.phase(), v1::PHASE_READY);
  node.failed = node.leases.begin()->second.gpu();
  for (auto& [name, lease] : node.leases) {
    lease.set_state("lost");
    lease.set_state_reason("its GPU has failed: it is lost");
  }
  cluster.live(3);
  const auto after = cluster.gpu("a");
  EXPECT_EQ(after.phase(), v1::PHASE_READY);
  EXPECT_NE(after.lease_id(), before.lease_id());
  EXPECT_EQ(cluster.want("b").phase(), v1::PHASE_READY);
  ASSERT_EQ(node.leases.size(), 2U);
  for (const auto& [name, lease] : node.leases) EXPECT_NE(lease.gpu(), *node.failed);
  // One that has begun since knows nothing of that GPU, and reports all the same.
  node.failed_before = true;
  cluster.live(3);
  cluster.add_vm("c", 16);
  EXPECT_EQ(cluster.want("c").phase(), v1::PHASE_WAITING);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  EXPECT_EQ(cluster.audit(), "");
}

TEST(ClusterManager, ANodeThatRefusesIsAvoidedForAWhile) {
  FakeCluster cluster(quick());
  cluster.add_node("n1").refuses = true;
  cluster.add_vm("a");
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_WAITING);
  EXPECT_THAT(cluster.gpu("a").reason(), HasSubstr("there is no room"));
  cluster.add_node("n2");
  cluster.work();
  EXPECT_EQ(cluster.gpu("a").node(), "n2");
  cluster.add_vm("b");
  ASSERT_TRUE(cluster.manager().release("a", "").ok());
  EXPECT_EQ(cluster.audit(), "");
}

TEST(ClusterManager, WhereNobodyKnowsWhetherALeaseWasMadeItIsEnded) {
  FakeCluster cluster(quick());
  cluster.add_node("n1").answers = false;
  cluster.add_node("n2");
  cluster.add_vm("a");
  cluster.want("a");
  EXPECT_EQ(cluster.gpu("a").node(), "n2");
  EXPECT_EQ(cluster.audit(), "");
  cluster.nodes.at("n1").answers = true;
  cluster.live(20);
  EXPECT_TRUE(cluster.nodes.at("n1").leases.empty());
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, TellsWhyALeaseIsNotOver) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  const auto reason = [&] {
    const auto leases = cluster.manager().leases("", "");
    EXPECT_EQ(leases->leases_size(), 1);
    return leases->leases(0).reason();
  };
  cluster.nodes.at("n1").answers = false;
  ASSERT_TRUE(cluster.manager().release("a", "an operator took it").ok());
  EXPECT_EQ(reason(), "an operator took it");
  cluster.work();
  EXPECT_EQ(reason(), "an operator took it; not over yet: the node does not answer");
  cluster.nodes.at("n1").answers = true;
  cluster.live(5);
  EXPECT_EQ(cluster.manager().leases("", "")->leases_size(), 0);
}

TEST(ClusterManager, ALeaseThatVanishedFromItsNodeIsReplaced) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  cluster.add_vm("a");
  const auto before = cluster.want("a");
  node.leases.clear();
  cluster.live(20);
  const auto after = cluster.gpu("a");
  EXPECT_EQ(after.phase(), v1::PHASE_READY);
  EXPECT_NE(after.lease_id(), before.lease_id());
  EXPECT_THAT(kinds(cluster), ::testing::Contains("gpu-lost"));
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, ALeaseOfOursThatNobodyRemembersIsItsVmsOrEnds) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.add_vm("b");
  cluster.want("a");
  cluster.want("b");
  // A backup from before.
  for (const char* key : {"grants/a", "grants/b", "vms/b", "generations/b"}) {
    cluster.entries.erase(key);
  }
  cluster.start();
  cluster.live(5);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  EXPECT_EQ(node.leases.size(), 1u);
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, ResizesWhatIsThereAndWhatIsToCome) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  v1::ResizeVmRequest request;
  request.set_vm("a");
  request.set_sms(20);
  const auto vm = cluster.manager().resize(request);
  ASSERT_TRUE(vm.ok()) << vm.error().message;
  EXPECT_EQ(vm->spec().sms(), 20u);
  EXPECT_EQ(vm->gpu().sms_granted(), 24u);
  request.set_sms(33);
  EXPECT_FALSE(cluster.manager().resize(request).ok());
  request.set_sms(32);
  request.set_memory_bytes(8ull << 30);
  EXPECT_EQ(cluster.manager().resize(request).error().code, ErrorCode::kLimit);
  EXPECT_EQ(cluster.manager().vms("a")->vms(0).spec().sms(), 20u);
  EXPECT_EQ(cluster.gpu("a").sms_granted(), 24u);
  // The rest of the GPU is free for others.
  cluster.add_vm("b", 8);
  EXPECT_EQ(cluster.want("b").phase(), v1::PHASE_READY);
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, GivesSharedMultiprocessorsToThoseWhoAgreeAlone) {
  FakeCluster cluster(quick());
  v1::NodeReport report = cluster.add_node("n1").report();
  const auto takes = [&](std::uint32_t percent) {
    report.mutable_description()->mutable_gpus(0)->set_sm_percent(percent);
    return cluster.manager().report(report).ok();
  };
  EXPECT_FALSE(takes(99));
  EXPECT_FALSE(takes(1001));
  EXPECT_FALSE(takes(UINT32_MAX));
  EXPECT_TRUE(takes(0));
  EXPECT_TRUE(takes(200));
  cluster.add_vm("alone");
  EXPECT_EQ(cluster.want("alone").phase(), v1::PHASE_WAITING);
  v1::SetVmsRequest request;
  request.add_vms()->set_name("alone");
  request.mutable_vms(0)->set_share_sms(true);
  request.add_fields("share_sms");
  ASSERT_TRUE(cluster.manager().set_vms(request).ok());
  EXPECT_EQ(cluster.want("alone").phase(), v1::PHASE_READY);
}

TEST(ClusterManager, ADrainingNodeEmptiesAsProgramsEnd) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.add_vm("b");
  cluster.want("a");
  cluster.want("b");
  for (auto& [name, lease] : node.leases) {
    if (name.starts_with("a.")) lease.set_sessions(1);
  }
  v1::SetNodeRequest drain;
  drain.set_node("n1");
  drain.set_draining(true);
  ASSERT_TRUE(cluster.manager().set_node(drain).ok());
  cluster.live(15);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  EXPECT_EQ(cluster.want("b").phase(), v1::PHASE_WAITING);
  for (auto& [name, lease] : node.leases) lease.set_sessions(0);
  cluster.live(15);
  EXPECT_TRUE(node.leases.empty());
  // It is so after a restart, too.
  cluster.start();
  cluster.live(2);
  EXPECT_EQ(cluster.manager().nodes("n1")->nodes(0).state(), v1::NODE_DRAINING);
  drain.set_draining(false);
  ASSERT_TRUE(cluster.manager().set_node(drain).ok());
  EXPECT_EQ(cluster.want("b").phase(), v1::PHASE_READY);
}

TEST(ClusterManager, ARestartedOneKnowsWhatTheLastOneDid) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a", 16);
  cluster.add_vm("b", 32);
  cluster.add_vm("c", 32);
  const auto before = cluster.want("a");
  cluster.want("c");
  cluster.want("b");
  cluster.start();
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_READY);
  EXPECT_EQ(cluster.gpu("a").lease_id(), before.lease_id());
  EXPECT_EQ(cluster.gpu("c").ahead(), 0u);
  EXPECT_EQ(cluster.gpu("b").ahead(), 1u);
  EXPECT_EQ(cluster.manager().nodes("n1")->nodes(0).state(), v1::NODE_UNKNOWN);
  cluster.live(1);
  EXPECT_EQ(cluster.manager().nodes("n1")->nodes(0).state(), v1::NODE_READY);
  EXPECT_EQ(cluster.audit(), "");
}

TEST(ClusterManager, RefusesReportsThatContradictThemselves) {
  FakeCluster cluster(quick());
  const FakeNode& node = cluster.add_node("n1");
  const auto refused = [&](auto change) {
    v1::NodeReport report = node.report();
    change(report);
    const auto reply = cluster.manager().report(report);
    return !reply && reply.error().code == ErrorCode::kInvalid;
  };
  EXPECT_TRUE(refused([](auto& report) { report.set_name("../n1"); }));
  EXPECT_TRUE(refused([](auto& report) { report.set_name(std::string(65, 'n')); }));
  EXPECT_TRUE(refused([](auto& report) { report.clear_address(); }));
  EXPECT_TRUE(refused([](auto& report) { report.set_address("file:///etc/passwd"); }));
  EXPECT_TRUE(refused([](auto& report) { report.set_host("a\nb"); }));
  EXPECT_TRUE(
      refused([](auto& report) { report.mutable_description()->mutable_gpus(0)->set_sms(1000); }));
  EXPECT_TRUE(refused([](auto& report) {
    report.mutable_description()->mutable_gpus(0)->mutable_groups(0)->set_sms(5);
    report.mutable_description()->mutable_gpus(0)->set_sms(29);
  }));
  EXPECT_TRUE(refused([](auto& report) {
    report.mutable_description()->mutable_gpus(0)->set_memory_bytes(1ull << 60);
  }));
  EXPECT_TRUE(refused([](auto& report) {
    *report.mutable_description()->add_gpus() = report.description().gpus(0);
  }));
  EXPECT_TRUE(refused([](auto& report) { report.add_leases(); }));
  EXPECT_TRUE(refused([](auto& report) {
    report.add_leases()->set_id("x");
    report.mutable_leases(0)->set_state_reason(std::string(kReportLeaseBytesMax, 'x'));
  }));
  for (const auto& [grant, vm] : {std::pair<std::string, std::string>{"../x", "a"},
                                  {std::string(65, 'x'), "a"},
                                  {"x", "a b"},
                                  {"x", ""}}) {
    EXPECT_TRUE(refused([&](auto& report) {
      report.add_leases()->set_id("x");
      auto& labels = *report.mutable_leases(0)->mutable_labels();
      labels["flyt/cluster"] = "any";
      labels["flyt/grant"] = grant;
      labels["flyt/vm"] = vm;
    }));
  }
  EXPECT_TRUE(refused([](auto& report) { report.add_problems(std::string(2000, 'x')); }));
  EXPECT_TRUE(refused([](auto& report) {
    for (int i = 0; i < 5000; ++i) report.add_leases()->set_id("x");
  }));
  EXPECT_TRUE(cluster.manager().report(node.report()).ok());
}

TEST(ClusterManager, TwoNodesCannotHaveOneName) {
  FakeCluster cluster(quick());
  v1::NodeReport other = cluster.add_node("n1").report();
  other.set_address("unix:///other");
  other.set_instance("2");
  EXPECT_EQ(cluster.manager().report(other).error().code, ErrorCode::kDenied);
  // The same one at another address, after it was away.
  cluster.nodes.at("n1").up = false;
  cluster.live(12);
  EXPECT_TRUE(cluster.manager().report(other).ok());
  EXPECT_EQ(cluster.manager().nodes("n1")->nodes(0).address(), "unix:///other");
}

TEST(ClusterManager, AsksANodeForFewThingsAtOnce) {
  FakeCluster cluster(quick());
  cluster.add_node("n1").groups = 32;
  cluster.report();
  for (int i = 0; i < 20; ++i) {
    const std::string name = "vm-" + std::to_string(i);
    cluster.add_vm(name, 8, 64 << 20);
    v1::GpuRequest request;
    request.set_vm(name);
    ASSERT_TRUE(cluster.manager().request(request).ok());
  }
  // Each call makes the manager ask for the next thing, from within.
  std::size_t most = 0;
  std::size_t now = 0;
  cluster.nodes.on_create = [&] {
    most = std::max(most, ++now);
    if (const auto job = cluster.manager().next_job(Duration(0))) cluster.manager().run(*job);
    --now;
  };
  cluster.work();
  cluster.nodes.on_create = nullptr;
  cluster.work();
  EXPECT_EQ(most, 8u);
  EXPECT_EQ(cluster.nodes.at("n1").leases.size(), 20u);
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, RefusesVmsThatCannotBe) {
  FakeCluster cluster(quick());
  cluster.add_vm("a");
  const auto refused = [&](auto change) {
    v1::SetVmsRequest request;
    v1::VmSpec& spec = *request.add_vms();
    spec.set_name("b");
    spec.set_sms(8);
    spec.set_memory_bytes(1ull << 30);
    change(spec);
    return !cluster.manager().set_vms(request).ok();
  };
  EXPECT_TRUE(refused([](auto& spec) { spec.set_name("-b"); }));
  EXPECT_TRUE(refused([](auto& spec) { spec.set_name(std::string(41, 'b')); }));
  EXPECT_TRUE(refused([](auto& spec) { spec.set_sms(0); }));
  EXPECT_TRUE(refused([](auto& spec) { spec.set_memory_bytes(1); }));
  EXPECT_TRUE(refused([](auto& spec) { spec.set_priority(1001); }));
  EXPECT_TRUE(refused([](auto& spec) { spec.set_policy("best"); }));
  EXPECT_TRUE(refused([](auto& spec) { spec.add_apart("team"); }));
  EXPECT_TRUE(refused([](auto& spec) { (*spec.mutable_labels())["flyt/vm"] = "a"; }));
  EXPECT_TRUE(refused([](auto& spec) { spec.set_address("a"); }));
  EXPECT_FALSE(refused([](auto& spec) { spec.set_address("10.0.0.7"); }));
  v1::SetVmsRequest twice;
  for (int i = 0; i < 2; ++i) {
    *twice.add_vms() = cluster.manager().vms("b")->vms(0).spec();
    twice.mutable_vms(i)->set_name("c" + std::to_string(i));
    twice.mutable_vms(i)->set_address("10.0.0.8");
  }
  EXPECT_FALSE(cluster.manager().set_vms(twice).ok());
}

TEST(ClusterManager, SetsWhatIsNamedAndNothingElse) {
  FakeCluster cluster(quick());
  cluster.add_vm("a", 16);
  v1::SetVmsRequest request;
  request.add_vms()->set_name("a");
  request.mutable_vms(0)->set_address("10.0.0.7");
  request.add_fields("address");
  ASSERT_TRUE(cluster.manager().set_vms(request).ok());
  const auto spec = cluster.manager().vms("10.0.0.7")->vms(0).spec();
  EXPECT_EQ(spec.name(), "a");
  EXPECT_EQ(spec.sms(), 16u);
  request.add_fields("colour");
  EXPECT_FALSE(cluster.manager().set_vms(request).ok());
}

TEST(ClusterManager, KeepsVmsWithTheSameLabelApart) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  v1::SetVmsRequest request;
  for (const char* name : {"a", "b"}) {
    v1::VmSpec& spec = *request.add_vms();
    spec.set_name(name);
    spec.set_sms(8);
    spec.set_memory_bytes(1ull << 30);
    (*spec.mutable_labels())["service"] = "web";
    spec.add_apart("service");
  }
  ASSERT_TRUE(cluster.manager().set_vms(request).ok());
  EXPECT_EQ(cluster.want("a").node(), "n1");
  EXPECT_EQ(cluster.want("b").phase(), v1::PHASE_WAITING);
  cluster.add_node("n2");
  cluster.work();
  EXPECT_EQ(cluster.gpu("b").node(), "n2");
}

TEST(ClusterManager, RemovesOnlyNodesThatAreLost) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  EXPECT_EQ(cluster.manager().remove_node("n1").error().code, ErrorCode::kUnsupported);
  cluster.nodes.at("n1").up = false;
  cluster.live(12);
  ASSERT_TRUE(cluster.manager().remove_node("n1").ok());
  EXPECT_EQ(cluster.manager().nodes("")->nodes_size(), 0);
  EXPECT_EQ(cluster.gpu("a").phase(), v1::PHASE_WAITING);
  cluster.start();
  EXPECT_EQ(cluster.manager().nodes("")->nodes_size(), 0);
}

TEST(ClusterManager, RemovesAVmWithItsVirtualGpuIfItMust) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  EXPECT_EQ(cluster.manager().remove_vm("a", false).error().code, ErrorCode::kUnsupported);
  ASSERT_TRUE(cluster.manager().remove_vm("a", true).ok());
  cluster.work();
  EXPECT_TRUE(node.leases.empty());
  EXPECT_FALSE(cluster.manager().gpu_of("a").ok());
  EXPECT_EQ(cluster.audit_quiet(), "");
}

TEST(ClusterManager, RefusesAStoreThatMakesNoSense) {
  FakeCluster cluster(quick());
  cluster.add_node("n1");
  cluster.add_vm("a");
  cluster.want("a");
  const testing::Entries good = cluster.entries;
  const auto starts = [&](auto change) {
    testing::Entries entries = good;
    change(entries);
    const bool full = false;
    Manager manager(quick(), Log("test", LogLevel::kOff),
                    std::make_unique<testing::MemoryStore>(entries, cluster.fuse, full),
                    cluster.nodes, cluster.clock);
    const Status status = manager.start();
    return status.ok() ? std::string("ok") : status.error().message;
  };
  EXPECT_EQ(starts([](auto&) {}), "ok");
  EXPECT_THAT(starts([](auto& entries) { entries["grants/a"].value = "\xff"; }),
              HasSubstr("grants/a is damaged"));
  EXPECT_THAT(starts([](auto& entries) { entries.erase("vms/a"); }), HasSubstr("no VM a"));
  EXPECT_THAT(starts([](auto& entries) { entries.erase("nodes/n1"); }), HasSubstr("no node n1"));
}

TEST(ClusterManager, RemembersWhoDidWhat) {
  FakeCluster cluster(quick());
  v1::AuditEntry entry;
  entry.set_caller("root");
  entry.set_action("vm rm");
  ASSERT_TRUE(cluster.manager().audit(entry).ok());
  cluster.start();
  ASSERT_TRUE(cluster.manager().audit(entry).ok());
  const auto audits = cluster.manager().audits(0);
  ASSERT_EQ(audits.size(), 2u);
  EXPECT_EQ(audits[1].number(), 2u);
  EXPECT_EQ(audits[1].caller(), "root");
}

// A message of a store is read again as UTF-8 only: a start would find it damaged.
TEST(ClusterManager, WhatCallersAndNodesWriteIsKeptSoThatItCanBeRead) {
  FakeCluster cluster(quick());
  FakeNode& node = cluster.add_node("n1");
  node.refuses = true;
  node.refusal = "\xff\x1b[31m" + std::string(5000, 'x');
  cluster.add_vm("a");
  EXPECT_EQ(cluster.want("a").phase(), v1::PHASE_WAITING);
  v1::AuditEntry entry;
  entry.set_caller("caller\xff");
  entry.set_peer("peer\xff");
  entry.set_subject(std::string(255, 'x') + "\xc3\xa9");
  entry.set_details(std::string(1 << 20, 'x'));
  entry.set_result("half a character \xc3");
  ASSERT_TRUE(cluster.manager().audit(entry).ok());
  cluster.start();
  const auto audits = cluster.manager().audits(0);
  ASSERT_EQ(audits.size(), 1u);
  EXPECT_EQ(audits[0].caller(), "caller?");
  EXPECT_EQ(audits[0].subject(), std::string(255, 'x'));
  EXPECT_EQ(audits[0].details().size(), 2048u);
  EXPECT_EQ(audits[0].result(), "half a character ?");
  EXPECT_THAT(cluster.gpu("a").reason(), HasSubstr("node n1: ??[31mxxx"));
  EXPECT_LE(cluster.gpu("a").reason().size(), kReasonBytesMax);
  for (const auto& event : cluster.manager().events(0)) {
    EXPECT_LE(event.text().size(), kReasonBytesMax);
  }
}

TEST(ClusterManager, ANodeThatInventsLeasesDoesNotFillTheStore) {
  FakeCluster cluster(quick());
  const FakeNode& node = cluster.add_node("n1");
  v1::NodeReport report = node.report();
  const std::string identity = cluster.entries.at("identity").value;
  state::Identity own;
  ASSERT_TRUE(own.ParseFromString(identity));
  for (int turn = 0; turn < 3; ++turn) {
    report.clear_leases();
    for (int i = 0; i < 2000; ++i) {
      node::v1::Lease& lease = *report.add_leases();
      const std::string id = std::to_string(turn * 10000 + i);
      lease.set_id(id);
      (*lease.mutable_labels())["flyt/cluster"] = own.cluster();
      (*lease.mutable_labels())["flyt/grant"] = id;
      (*lease.mutable_labels())["flyt/vm"] = "nobody";
    }
    EXPECT_TRUE(cluster.manager().report(report).ok());
  }
  const auto endings =
      std::count_if(cluster.entries.begin(), cluster.entries.end(),
                    [](const auto& entry) { return entry.first.starts_with("endings/"); });
  EXPECT_EQ(endings, kReportLeasesMax);
}

TEST(ClusterManager, NoVmKeepsOthersFromWatching) {
  FakeCluster cluster(quick());
  cluster.add_vm("a");
  cluster.add_vm("b");
  int begun = 0;
  while (begun < 1000 && cluster.manager().watch("a", true).ok()) ++begun;
  EXPECT_EQ(begun, 16);
  EXPECT_EQ(cluster.manager().watch("a", true).error().code, ErrorCode::kLimit);
  EXPECT_TRUE(cluster.manager().watch("b", true).ok());
  EXPECT_TRUE(cluster.manager().watch("a", false).ok());
  EXPECT_TRUE(cluster.manager().watch("a", true).ok());
}

}  // namespace
}  // namespace flyt::cluster
