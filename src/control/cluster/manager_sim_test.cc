// A cluster manager that is killed at any moment, nodes that go and come: nothing is ever granted
// twice, no lease is ever forgotten.
#include <gtest/gtest.h>

#include "control/cluster/testing/fake_cluster.h"

namespace flyt::cluster {
namespace {

using testing::FakeCluster;

constexpr std::uint64_t kSeeds = 200;
constexpr int kSteps = 120;
constexpr std::uint64_t kNodes = 3;
constexpr std::uint64_t kVms = 8;

class Storm {
 public:
  explicit Storm(std::uint64_t seed) : random_(seed), cluster_(quick()) {
    for (std::uint64_t i = 0; i < kNodes; ++i) {
      testing::FakeNode& node = cluster_.add_node("n" + std::to_string(i));
      node.gpus = 2;
      if (random_.one_in(2)) node.rest = 12;
    }
    for (std::uint64_t i = 0; i < kVms; ++i) {
      cluster_.add_vm(vm(i), 8 * (1 + static_cast<std::uint32_t>(random_.below(4))),
                      1ull << (28 + random_.below(4)));
      if (random_.one_in(2)) scale(vm(i));
    }
  }

  void run() {
    for (int i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) {
      step();
      if (cluster_.fuse.dead()) cluster_.start();
      EXPECT_EQ(cluster_.audit(), "") << "after step " << i;
    }
    calm();
  }

 private:
  static Config quick() {
    Config config;
    config.scaling_window_seconds = 4;
    config.scaling_cool_down_seconds = 5;
    return config;
  }
  void scale(const std::string& name) {
    v1::SetVmsRequest request;
    request.add_vms()->set_name(name);
    request.mutable_vms(0)->set_sms_min(8);
    request.mutable_vms(0)->set_sms_max(32);
    request.add_fields("sms_min");
    request.add_fields("sms_max");
    EXPECT_TRUE(cluster_.manager().set_vms(request).ok());
  }

  static std::string vm(std::uint64_t number) { return "vm-" + std::to_string(number); }
  std::string any_vm() { return vm(random_.below(kVms)); }
  testing::FakeNode& any_node() {
    return cluster_.nodes.at("n" + std::to_string(random_.below(kNodes)));
  }

  void step() {
    switch (random_.below(12)) {
      case 0:
        // It dies within the next things that it does.
        cluster_.fuse.light(1 + random_.below(12));
        break;
      case 1:
        cluster_.start();
        break;
      case 2:
        any_node().up = random_.below(2) != 0;
        break;
      case 3:
        any_node().answers = !random_.one_in(3);
        break;
      case 4:
        any_node().refuses = random_.one_in(3);
        break;
      case 5:
        static_cast<void>(cluster_.manager().release(any_vm(), "released").ok());
        break;
      case 6:
        resize();
        break;
      case 7:
        drain();
        break;
      case 8:
        use();
        break;
      case 9:
        cluster_.disk_full = random_.one_in(4);
        break;
      default:
        want();
        break;
    }
    if (!random_.one_in(4)) cluster_.live(static_cast<std::uint32_t>(1 + random_.below(6)));
  }

  void want() {
    v1::GpuRequest request;
    request.set_vm(any_vm());
    request.set_token(random_.one_in(2));
    static_cast<void>(cluster_.manager().request(request).ok());
    // Sometimes other things happen before its node is asked.
    if (!random_.one_in(3)) cluster_.work();
  }

  void resize() {
    v1::ResizeVmRequest request;
    request.set_vm(any_vm());
    request.set_sms(8 * (1 + static_cast<std::uint32_t>(random_.below(4))));
    static_cast<void>(cluster_.manager().resize(request).ok());
  }

  void drain() {
    v1::SetNodeRequest request;
    request.set_node("n" + std::to_string(random_.below(kNodes)));
    request.set_draining(random_.one_in(2));
    static_cast<void>(cluster_.manager().set_node(request).ok());
  }

  // Programs come and go; and now and then somebody releases a lease at the node itself.
  void use() {
    testing::FakeNode& node = any_node();
    node.busy_percent = random_.below(101);
    for (auto& [name, lease] : node.leases) {
      lease.set_sessions(static_cast<std::uint32_t>(random_.below(2)));
    }
    if (random_.one_in(6) && !node.leases.empty()) node.leases.erase(node.leases.begin());
  }

  // Everything works again: soon there is one lease for each grant, and nothing else.
  void calm() {
    cluster_.disk_full = false;
    cluster_.start();
    for (auto& [address, node] : cluster_.nodes.all()) {
      node.up = node.answers = true;
      node.refuses = false;
    }
    for (std::uint64_t i = 0; i < kNodes; ++i) {
      v1::SetNodeRequest request;
      request.set_node("n" + std::to_string(i));
      request.set_draining(false);
      EXPECT_TRUE(cluster_.manager().set_node(request).ok());
    }
    cluster_.live(60);
    EXPECT_EQ(cluster_.audit_quiet(), "");
    // Who wants one gets one, one after the other.
    for (std::uint64_t i = 0; i < kVms; ++i) {
      static_cast<void>(cluster_.manager().release(vm(i), "released").ok());
    }
    cluster_.live(5);
    for (std::uint64_t i = 0; i < kVms; ++i) {
      EXPECT_EQ(cluster_.want(vm(i)).phase(), v1::PHASE_READY) << vm(i);
      ASSERT_TRUE(cluster_.manager().release(vm(i), "released").ok());
      cluster_.work();
    }
    cluster_.live(2);
    EXPECT_EQ(cluster_.audit_quiet(), "");
  }

  Random random_;
  FakeCluster cluster_;
};

TEST(ClusterSimulation, NothingIsGrantedTwiceAndNothingForgotten) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Storm(seed).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace flyt::cluster
