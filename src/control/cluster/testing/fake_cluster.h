// FakeCluster: nodes, a store and a clock in memory, so that a cluster manager can be tested with
// crashes at any moment.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "control/cluster/manager.h"
#include "control/cluster/node_calls.h"
#include "control/cluster/store.h"

namespace flyt::cluster::testing {

class FakeClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  // lint: allow(sleep): this is the clock itself, and nobody waits.
  void sleep_for(Duration) const override {}
  void pass(Duration time) { now_ = now_ + time; }

 private:
  Instant now_{1'000'000'000'000};
};

// When it has burnt down the manager's process is dead: nothing that it does has an effect.
class Fuse {
 public:
  void light(std::uint64_t steps) { left_ = steps; }
  void replace() { left_ = UINT64_MAX; }
  bool dead() const { return left_ == 0; }
  // One more step; false: it is not taken.
  bool step() {
    if (left_ == 0) return false;
    if (left_ != UINT64_MAX) --left_;
    return true;
  }

 private:
  std::uint64_t left_ = UINT64_MAX;
};

using Entries = std::map<std::string, StoreEntry>;

// What is on disk outlives the manager.
class MemoryStore final : public Store {
 public:
  MemoryStore(Entries& entries, Fuse& fuse, const bool& full)
      : entries_(entries), fuse_(fuse), full_(full) {}
  Result<std::vector<StoreEntry>> list(std::string_view prefix) override;
  Result<std::uint64_t> commit(std::span<const StoreCondition> conditions,
                               std::span<const StoreChange> changes) override;
  // So few that a manager may die between any two commits of what it places.
  std::size_t changes_at_once() const override { return 12; }

 private:
  Entries& entries_;
  Fuse& fuse_;
  const bool& full_;
};

struct FakeNode {
  std::string name;
  std::uint32_t gpus = 1;
  std::uint32_t groups = 4;  // Of 8 multiprocessors, on each GPU.
  std::uint32_t rest = 0;    // And one more group, of what is left over; 0: there is none.
  std::uint64_t memory = 4ull << 30;
  bool up = true;        // It can be reached.
  bool answers = true;   // Otherwise it does what it is asked, and the answer is lost.
  bool refuses = false;  // It has no room, whatever it reported.
  std::string refusal = "there is no room";
  bool host_only = false;          // Programs of other machines have no address for its leases.
  std::uint64_t busy_percent = 0;  // Of each lease.
  std::optional<std::uint32_t> failed = {};       // A GPU,
  bool failed_before = false;                     // and it had when the node began.
  std::map<std::string, node::v1::Lease> leases;  // By name.
  std::uint64_t epoch = 0;                        // The newest that has asked.

  v1::NodeReport report() const;
  bool fits(std::uint32_t gpu, std::uint32_t sms, std::uint64_t bytes,
            const std::string& without) const;
  // Grants so much. False, and nothing is changed: there is no room.
  bool grant(node::v1::Lease& lease, std::uint32_t sms, std::uint64_t bytes) const;
};

class FakeNodes final : public NodeCalls {
 public:
  explicit FakeNodes(Fuse& fuse) : fuse_(fuse) {}
  FakeNode& add(const std::string& name);
  std::function<void()> on_create;  // While a node makes a lease.
  std::map<std::string, FakeNode>& all() { return nodes_; }
  const std::map<std::string, FakeNode>& all() const { return nodes_; }
  // What leases do passes so long.
  void use(Duration time);
  FakeNode& at(const std::string& name) { return nodes_.at("unix:///" + name); }

  Result<node::v1::Lease> create(const std::string& address,
                                 const node::v1::CreateLeaseRequest& request) override;
  Result<node::v1::Lease> resize(const std::string& address,
                                 const node::v1::ResizeLeaseRequest& request) override;
  Result<node::v1::Lease> release(const std::string& address,
                                  const node::v1::ReleaseLeaseRequest& request) override;
  Result<node::v1::Lease> lease(const std::string& address, const std::string& lease) override;
  Result<node::v1::Token> token(const std::string& address, const std::string& lease,
                                std::uint32_t seconds) override;
  Result<node::v1::ListSessionsResponse> sessions(const std::string& address) override;

 private:
  Result<FakeNode*> reach(const std::string& address);
  // What of it changes something: only for the newest manager, or one that says nothing of it.
  Result<FakeNode*> reach(const std::string& address, const node::v1::Leader& leader);
  template <class T>
  Result<T> answer(const FakeNode& node, T value) const;

  Fuse& fuse_;
  std::map<std::string, FakeNode> nodes_;  // By address.
  std::uint64_t made_ = 0;
};

// What must hold at any moment; empty if it does. Every lease of ours is in the store, and no node
// has given out more than it has.
std::string audit_leases(const Entries& entries, const FakeNodes& nodes);
// What must hold when all is quiet: leases and grants are the same.
std::string audit_quiet_leases(const Entries& entries, const FakeNodes& nodes, Manager& manager);

class FakeCluster {
 public:
  explicit FakeCluster(Config config = {});
  ~FakeCluster();

  // Starts a manager from what is on disk; the one before is gone.
  void start();
  Manager& manager() { return *manager_; }
  FakeNode& add_node(const std::string& name);
  void add_vm(const std::string& name, std::uint32_t sms = 8, std::uint64_t memory = 1ull << 30);

  // All nodes that are up report.
  void report();
  // Does what is to be done, until there is nothing.
  void work();
  // Reports and ticks for so long, in steps of a second, and does what is to be done.
  void live(std::uint32_t seconds);
  v1::VirtualGpu want(const std::string& vm);
  v1::VirtualGpu gpu(const std::string& vm);

  std::string audit() const { return audit_leases(entries, nodes); }
  std::string audit_quiet() { return audit_quiet_leases(entries, nodes, *manager_); }

  FakeClock clock;
  Fuse fuse;
  FakeNodes nodes{fuse};
  Entries entries;
  bool disk_full = false;

 private:
  Config config_;
  std::unique_ptr<Manager> manager_;
};

}  // namespace flyt::cluster::testing
