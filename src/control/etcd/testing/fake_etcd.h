// FakeEtcd: etcd in memory, and links to it that fail, so that those who share it can be tested.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/etcd/etcd.h"

namespace flyt::control::testing {

class FakeEtcd {
 public:
  explicit FakeEtcd(const Clock& clock) : clock_(clock) {}

  // Ends leases whose time has passed; every call does that, too.
  void pass_time();
  const std::map<std::string, EtcdEntry>& entries() const { return entries_; }

  bool full = false;  // Keys can only be removed.

 private:
  friend class FakeLink;
  struct Lease {
    std::uint32_t seconds = 0;
    Instant until;
  };
  Result<EtcdOutcome> commit(const std::vector<EtcdCompare>& compares,
                             const std::vector<EtcdChange>& changes);
  void drop_lease(std::uint64_t lease);

  const Clock& clock_;
  std::map<std::string, EtcdEntry> entries_;
  std::map<std::string, std::uint64_t> lease_of_;
  std::map<std::uint64_t, Lease> leases_;
  std::uint64_t revision_ = 1;
  std::uint64_t last_lease_ = 0;
};

// As one process has it.
class FakeLink final : public Etcd {
 public:
  explicit FakeLink(FakeEtcd& etcd) : etcd_(etcd) {}

  bool cut = false;   // What is asked does not arrive.
  bool deaf = false;  // It is done, and the answer is lost.
  bool slow =
      false;  // What is to be written is done only at deliver(), whoever has given up on it.
  // Before anything is done; false: the process is dead.
  std::function<bool()> alive = [] { return true; };
  // What was on its way arrives.
  void deliver();

  Result<EtcdEntries> list(std::string_view prefix) override;
  Result<EtcdOutcome> commit(const std::vector<EtcdCompare>& compares,
                             const std::vector<EtcdChange>& changes) override;
  Result<EtcdLease> grant(std::uint32_t seconds) override;
  Status keep(std::uint64_t lease) override;
  Status revoke(std::uint64_t lease) override;
  // Nothing is ever told; whoever needs it uses a real etcd.
  Status watch(std::string_view prefix, std::uint64_t revision,
               const std::function<bool(const std::vector<EtcdEntry>&)>& take) override;
  void stop() override {}

 private:
  struct Late {
    std::vector<EtcdCompare> compares;
    std::vector<EtcdChange> changes;
  };
  // An error if it does not arrive.
  Status reach();

  FakeEtcd& etcd_;
  std::vector<Late> late_;
};

}  // namespace flyt::control::testing
