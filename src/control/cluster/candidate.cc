#include "control/cluster/candidate.h"

#include "control/cluster/etcd_store.h"

namespace flyt::cluster {
namespace {

// What is left for clocks that do not run alike.
constexpr int kMarginParts = 10;
constexpr int kKeepParts = 4;

}  // namespace

bool Candidate::note(const Status& status) {
  problem_ = status ? "" : status.error().message;
  return status.ok();
}

void Candidate::step() {
  // What nobody knows about the old one ends with it.
  if (tenure_ && tenure_->ended()) drop_lease();
  if (lease_ != 0) keep();
  if (!tenure_) campaign();
}

void Candidate::keep() {
  const Instant now = clock_.now();
  if (now - kept_ < length_ / kKeepParts) return;
  const Status status = etcd_.keep(lease_);
  if (note(status)) {
    kept_ = now;
    if (tenure_) tenure_->extend(now + (length_ - length_ / kMarginParts));
    return;
  }
  const bool gone = status.error().code == ErrorCode::kNotFound || now - kept_ > length_;
  if (!gone) return;
  if (tenure_) tenure_->end("its lease has ended: " + status.error().message);
  tenure_.reset();
  lease_ = 0;
}

bool Candidate::take_lease() {
  if (lease_ != 0) return true;
  const Instant asked = clock_.now();
  const auto lease = etcd_.grant(settings_.seconds);
  if (!note(lease ? Status() : Status(lease.error()))) return false;
  lease_ = lease->id;
  length_ = std::chrono::seconds(settings_.seconds);
  kept_ = asked;
  return true;
}

void Candidate::campaign() {
  const std::string key = settings_.prefix + std::string(kEtcdLeader);
  const auto found = etcd_.list(key);
  if (!note(found ? Status() : Status(found.error()))) return;
  if (!found->entries.empty() && !is_own(found->entries.front())) return;
  leader_.reset();
  if (!take_lease()) return;
  const auto outcome = etcd_.commit({{key, control::EtcdCompare::What::kCreated, 0}},
                                    {{key, settings_.self.SerializeAsString(), lease_}});
  if (!note(outcome ? Status() : Status(outcome.error()))) {
    // Perhaps the key is ours, and nobody knows.
    drop_lease();
    return;
  }
  if (!outcome->done) return;
  tenure_ = std::make_shared<Tenure>(clock_, key, outcome->revision,
                                     kept_ + (length_ - length_ / kMarginParts));
}

// A key of an earlier tenure of ours goes: whoever serves at our address is us, so its other holder
// is dead, or was told that it has ended.
bool Candidate::is_own(const control::EtcdEntry& entry) {
  state::Leader leader;
  if (!leader.ParseFromString(entry.value)) return false;
  if (leader.name() != settings_.self.name() || leader.address() != settings_.self.address()) {
    leader_ = std::move(leader);
    return false;
  }
  const auto gone = etcd_.commit({{entry.key, control::EtcdCompare::What::kCreated, entry.created}},
                                 {{entry.key, std::nullopt, 0}});
  return note(gone ? Status() : Status(gone.error()));
}

void Candidate::drop_lease() {
  if (tenure_) tenure_->end("given up");
  tenure_.reset();
  if (lease_ != 0) static_cast<void>(etcd_.revoke(lease_).ok());
  lease_ = 0;
}

void Candidate::resign(const std::string& why) {
  if (tenure_) tenure_->end(why);
  drop_lease();
}

}  // namespace flyt::cluster
