// Two cluster managers on one etcd: killed, held still, cut off from etcd, nodes and each other.
// Nothing is ever granted twice, no lease is ever forgotten, and never do both decide.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "control/cluster/council.h"
#include "control/cluster/etcd_store.h"
#include "control/cluster/testing/fake_cluster.h"
#include "control/etcd/testing/fake_etcd.h"

namespace flyt::cluster {
namespace {

using control::testing::FakeEtcd;
using control::testing::FakeLink;
using testing::FakeClock;
using testing::FakeNode;
using testing::FakeNodes;
using testing::Fuse;

constexpr std::uint64_t kSeeds = 40;  // ./dev sim takes more.
constexpr int kSteps = 100;
constexpr std::uint64_t kNodes = 3;
constexpr std::uint64_t kVms = 6;
constexpr std::uint64_t kManagers = 2;
constexpr Duration kQuarter = std::chrono::milliseconds(250);
const std::string kPrefix = "/flyt/";

// How one manager reaches nodes.
class Wire final : public NodeCalls {
 public:
  Wire(FakeNodes& nodes, Fuse& fuse) : nodes_(nodes), fuse_(fuse) {}

  std::set<std::string> cut;  // Addresses.

  Result<node::v1::Lease> create(const std::string& address,
                                 const node::v1::CreateLeaseRequest& request) override {
    return pass<node::v1::Lease>(address, [&] { return nodes_.create(address, request); });
  }
  Result<node::v1::Lease> resize(const std::string& address,
                                 const node::v1::ResizeLeaseRequest& request) override {
    return pass<node::v1::Lease>(address, [&] { return nodes_.resize(address, request); });
  }
  Result<node::v1::Lease> release(const std::string& address,
                                  const node::v1::ReleaseLeaseRequest& request) override {
    return pass<node::v1::Lease>(address, [&] { return nodes_.release(address, request); });
  }
  Result<node::v1::Lease> lease(const std::string& address, const std::string& lease) override {
    return pass<node::v1::Lease>(address, [&] { return nodes_.lease(address, lease); });
  }
  Result<node::v1::Token> token(const std::string& address, const std::string& lease,
                                std::uint32_t seconds) override {
    return pass<node::v1::Token>(address, [&] { return nodes_.token(address, lease, seconds); });
  }
  Result<node::v1::ListSessionsResponse> sessions(const std::string& address) override {
    return nodes_.sessions(address);
  }

 private:
  template <class T, class Call>
  Result<T> pass(const std::string& address, Call call) {
    const Error gone{ErrorCode::kLost, "the node cannot be reached"};
    if (cut.contains(address) || !fuse_.step()) return gone;
    Result<T> answer = call();
    // The manager may die before it hears the answer.
    return fuse_.dead() ? Result<T>(gone) : std::move(answer);
  }

  FakeNodes& nodes_;
  Fuse& fuse_;
};

// One manager's process.
class Process {
 public:
  Process(FakeEtcd& etcd, FakeNodes& nodes, const Clock& clock, std::string name)
      : name_(std::move(name)), clock_(clock), link(etcd), wire(nodes, fuse) {
    link.alive = [this] { return fuse.step(); };
    start();
  }

  void start() {
    council_.reset();
    fuse.replace();
    still = 0;
    state::Leader self;
    self.set_name(name_);
    self.set_address(name_ + ":1");
    self.set_instance(std::to_string(++starts_));
    const Log log("test", LogLevel::kOff);
    council_ = std::make_unique<Council>(
        link, clock_, log, Candidate::Settings{kPrefix, 2, self},
        [this, log](std::unique_ptr<Store> store) {
          return std::make_shared<Manager>(Config{}, log, std::move(store), wire, clock_);
        },
        [](const std::shared_ptr<Manager>&) {}, nullptr);
  }
  bool runs() const { return still == 0 && !fuse.dead(); }
  // The manager, if it believes that it decides.
  std::shared_ptr<Manager> deciding() {
    auto here = council_->answerer().here;
    return here && here->decides() && !fuse.dead() ? here : nullptr;
  }
  void step() { council_->step(); }
  void work() {
    const auto here = council_->answerer().here;
    if (!here) return;
    while (const auto job = here->next_job(Duration(0))) here->run(*job);
  }
  void tick() {
    if (const auto here = council_->answerer().here) here->tick();
  }

 private:
  const std::string name_;
  const Clock& clock_;
  int starts_ = 0;

 public:
  Fuse fuse;
  FakeLink link;
  Wire wire;
  int still = 0;  // Quarters of a second that it is held.

 private:
  std::unique_ptr<Council> council_;
};

class Storm {
 public:
  explicit Storm(std::uint64_t seed) : random_(seed) {
    for (std::uint64_t i = 0; i < kNodes; ++i) nodes_.add("n" + std::to_string(i)).gpus = 2;
    for (std::uint64_t i = 0; i < kManagers; ++i) {
      processes_[i] = std::make_unique<Process>(etcd_, nodes_, clock_, "m" + std::to_string(i));
    }
    live(3);
    v1::SetVmsRequest request;
    for (std::uint64_t i = 0; i < kVms; ++i) {
      v1::VmSpec& spec = *request.add_vms();
      spec.set_name(vm(i));
      spec.set_sms(8 * (1 + static_cast<std::uint32_t>(random_.below(4))));
      spec.set_memory_bytes(1ull << (28 + random_.below(4)));
    }
    EXPECT_TRUE(leader() && leader()->set_vms(request).ok());
  }

  void run() {
    for (int i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) {
      step();
      live(static_cast<std::uint32_t>(random_.below(4)));
      EXPECT_EQ(audit_leases(entries(), nodes_), "") << "after step " << i;
    }
    if (!::testing::Test::HasFailure()) calm();
  }
  std::uint64_t tenures() const { return tenures_; }

 private:
  static std::string vm(std::uint64_t number) { return "vm-" + std::to_string(number); }
  std::string any_vm() { return vm(random_.below(kVms)); }
  FakeNode& any_node() { return nodes_.at("n" + std::to_string(random_.below(kNodes))); }
  Process& any_process() { return *processes_[random_.below(kManagers)]; }

  // What etcd has of the cluster's state.
  testing::Entries entries() const {
    testing::Entries found;
    const std::string front = kPrefix + std::string(kEtcdState);
    for (const auto& [key, entry] : etcd_.entries()) {
      if (!key.starts_with(front)) continue;
      const std::string name = key.substr(front.size());
      found[name] = {name, entry.value, entry.modified};
    }
    return found;
  }

  // Never more than one.
  std::shared_ptr<Manager> leader() {
    std::shared_ptr<Manager> found;
    for (const auto& process : processes_) {
      auto one = process->deciding();
      if (!one) continue;
      EXPECT_EQ(found, nullptr) << "both decide";
      found = std::move(one);
    }
    if (found && found != last_) ++tenures_;
    if (found) last_ = found;
    return found;
  }

  void quarter() {
    clock_.pass(kQuarter);
    for (const auto& process : processes_) {
      if (process->still != 0 && --process->still == 0) {
        // It goes on where it was held, before it looks at the time.
        process->work();
        process->tick();
      }
      if (process->runs()) process->step();
    }
    static_cast<void>(leader());
  }
  void live(std::uint32_t seconds) {
    for (std::uint32_t i = 0; i < seconds; ++i) {
      for (int j = 0; j < 4; ++j) quarter();
      for (const auto& [address, node] : nodes_.all()) {
        if (node.up) report(node);
      }
      for (const auto& process : processes_) {
        if (!process->runs()) continue;
        process->tick();
        process->work();
      }
    }
  }
  void report(const FakeNode& node) {
    for (const auto& process : processes_) {
      const auto here = process->deciding();
      if (!here || !process->runs() || process->wire.cut.contains("unix:///" + node.name)) continue;
      if (here->report(node.report()).ok()) return;
    }
  }

  void step() {
    switch (random_.below(18)) {
      case 0:
        any_process().fuse.light(1 + random_.below(16));
        break;
      case 1:
        any_process().start();
        break;
      case 2:
        any_process().still = static_cast<int>(1 + random_.below(20));
        break;
      case 3:
        any_process().link.cut = random_.one_in(2);
        break;
      case 4:
        any_process().link.deaf = random_.one_in(3);
        break;
      case 5:
        any_process().link.slow = random_.one_in(3);
        break;
      case 6:
        for (const auto& process : processes_) process->link.deliver();
        break;
      case 7:
        cut_wire();
        break;
      case 8:
        any_node().up = !random_.one_in(3);
        break;
      case 9:
        any_node().answers = !random_.one_in(3);
        break;
      case 10:
        etcd_.full = random_.one_in(5);
        break;
      case 11:
        drain_or_use();
        break;
      case 12:
        restart_dead();
        break;
      case 13:
        hold_the_leader();
        break;
      default:
        ask();
        break;
    }
  }
  // It has granted, and is held before it asks the node: others go on meanwhile.
  void hold_the_leader() {
    const auto here = leader();
    if (!here) return;
    const std::string name = any_vm();
    v1::GpuRequest request;
    request.set_vm(name);
    static_cast<void>(here->request(request).ok());
    for (const auto& process : processes_) {
      if (process->deciding() == here) process->still = static_cast<int>(14 + random_.below(10));
    }
    live(3);
    const auto other = leader();
    if (other && other != here && random_.one_in(2)) {
      static_cast<void>(other->release(name, "released").ok());
    }
    live(2);
  }
  void restart_dead() {
    for (const auto& process : processes_) {
      if (process->fuse.dead()) process->start();
    }
  }
  void cut_wire() {
    auto& cut = any_process().wire.cut;
    const std::string address = "unix:///n" + std::to_string(random_.below(kNodes));
    if (cut.erase(address) == 0) cut.insert(address);
  }
  void drain_or_use() {
    FakeNode& node = any_node();
    for (auto& [name, lease] : node.leases) {
      lease.set_sessions(static_cast<std::uint32_t>(random_.below(2)));
    }
    v1::SetNodeRequest request;
    request.set_node(node.name);
    request.set_draining(random_.one_in(3));
    if (const auto here = leader()) static_cast<void>(here->set_node(request).ok());
  }
  void ask() {
    const auto here = leader();
    if (!here) return;
    v1::GpuRequest request;
    request.set_vm(any_vm());
    v1::ResizeVmRequest resize;
    resize.set_vm(any_vm());
    resize.set_sms(8 * (1 + static_cast<std::uint32_t>(random_.below(4))));
    switch (random_.below(5)) {
      case 0:
        static_cast<void>(here->release(any_vm(), "released").ok());
        break;
      case 1:
        static_cast<void>(here->resize(resize).ok());
        break;
      default:
        static_cast<void>(here->request(request).ok());
        break;
    }
    // Sometimes other things happen before its node is asked.
    if (random_.one_in(3)) return;
    for (const auto& process : processes_) {
      if (process->runs()) process->work();
    }
  }

  // Everything works again: soon one decides, and there is one lease for each grant.
  void calm() {
    etcd_.full = false;
    for (const auto& process : processes_) {
      process->link.deliver();
      process->link.cut = process->link.deaf = process->link.slow = false;
      process->wire.cut.clear();
      process->still = 0;
      if (process->fuse.dead()) process->start();
      process->fuse.replace();
    }
    for (auto& [address, node] : nodes_.all()) node.up = node.answers = true;
    for (int i = 0; i < 12; ++i) quarter();
    ASSERT_NE(leader(), nullptr) << "nobody decides";
    for (std::uint64_t i = 0; i < kNodes; ++i) {
      v1::SetNodeRequest request;
      request.set_node("n" + std::to_string(i));
      request.set_draining(false);
      static_cast<void>(leader()->set_node(request).ok());
    }
    live(70);
    ASSERT_NE(leader(), nullptr);
    EXPECT_EQ(audit_quiet_leases(entries(), nodes_, *leader()), "");
    for (std::uint64_t i = 0; i < kVms; ++i) {
      EXPECT_TRUE(leader()->release(vm(i), "released").ok());
    }
    live(5);
    for (std::uint64_t i = 0; i < kVms; ++i) {
      v1::GpuRequest request;
      request.set_vm(vm(i));
      EXPECT_TRUE(leader()->request(request).ok());
      live(1);
      EXPECT_EQ(leader()->gpu_of(vm(i))->phase(), v1::PHASE_READY) << vm(i);
      EXPECT_TRUE(leader()->release(vm(i), "released").ok());
      live(1);
    }
    EXPECT_EQ(audit_quiet_leases(entries(), nodes_, *leader()), "");
  }

  Random random_;
  FakeClock clock_;
  FakeEtcd etcd_{clock_};
  Fuse never_;
  FakeNodes nodes_{never_};
  std::array<std::unique_ptr<Process>, kManagers> processes_;
  std::shared_ptr<Manager> last_;
  std::uint64_t tenures_ = 0;
};

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(CouncilSimulation, NothingIsGrantedTwiceAndNothingForgotten) {
  const std::uint64_t first = number_of("FLYT_SIM_FIRST_SEED", 1);
  const std::uint64_t seeds = number_of("FLYT_SIM_SEEDS", kSeeds);
  std::uint64_t tenures = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Storm storm(seed);
    storm.run();
    tenures += storm.tenures();
    if (HasFailure()) return;
  }
  // Otherwise it would prove little.
  EXPECT_GT(tenures, 5 * seeds);
}

}  // namespace
}  // namespace flyt::cluster
