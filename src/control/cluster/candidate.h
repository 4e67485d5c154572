// Candidate: one cluster manager's part in the election of the one that decides.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "control/cluster/tenure.h"
#include "control/cluster_state.pb.h"
#include "control/etcd/etcd.h"

namespace flyt::cluster {

// Who holds the leader's key decides. The key is bound to a lease, which is kept as long as its
// holder lives; so it goes with him. Not thread-safe.
class Candidate {
 public:
  struct Settings {
    std::string prefix;         // Of the cluster's keys.
    std::uint32_t seconds = 2;  // Of the lease.
    state::Leader self;         // What others are told.
  };
  Candidate(control::Etcd& etcd, const Clock& clock, Settings settings)
      : etcd_(etcd), clock_(clock), settings_(std::move(settings)) {}

  // Does what is due: keeps the lease, or tries to get the key. Often: several times for each
  // second of the lease; each time bounded.
  void step();
  // Gives the key up, so that others need not wait for the lease to end.
  void resign(const std::string& why);

  // Ours, if we have the key; it may have ended meanwhile.
  const std::shared_ptr<Tenure>& tenure() const { return tenure_; }
  // Somebody else that has it, as last seen.
  const std::optional<state::Leader>& leader() const { return leader_; }
  // Why etcd cannot be asked; empty: it answers.
  const std::string& problem() const { return problem_; }

 private:
  void keep();
  void campaign();
  bool is_own(const control::EtcdEntry& entry);
  // Whether there is a lease.
  bool take_lease();
  void drop_lease();
  // What etcd said is a problem, or none.
  bool note(const Status& status);

  control::Etcd& etcd_;
  const Clock& clock_;
  const Settings settings_;
  std::uint64_t lease_ = 0;
  Duration length_{0};
  Instant kept_;
  std::shared_ptr<Tenure> tenure_;
  std::optional<state::Leader> leader_;
  std::string problem_;
};

}  // namespace flyt::cluster
