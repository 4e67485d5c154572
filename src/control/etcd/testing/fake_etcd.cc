#include "control/etcd/testing/fake_etcd.h"

#include <algorithm>

namespace flyt::control::testing {
namespace {

Error lost() { return {ErrorCode::kLost, "etcd does not answer"}; }

}  // namespace

void FakeEtcd::drop_lease(std::uint64_t lease) {
  leases_.erase(lease);
  bool any = false;
  for (auto one = lease_of_.begin(); one != lease_of_.end();) {
    if (one->second != lease) {
      ++one;
      continue;
    }
    any = true;
    entries_.erase(one->first);
    one = lease_of_.erase(one);
  }
  if (any) ++revision_;
}

void FakeEtcd::pass_time() {
  std::vector<std::uint64_t> ended;
  for (const auto& [id, lease] : leases_) {
    if (clock_.now() >= lease.until) ended.push_back(id);
  }
  for (const std::uint64_t id : ended) drop_lease(id);
}

Result<EtcdOutcome> FakeEtcd::commit(const std::vector<EtcdCompare>& compares,
                                     const std::vector<EtcdChange>& changes) {
  pass_time();
  if (compares.size() > kEtcdOperationsMax || changes.size() > kEtcdOperationsMax) {
    return Error{ErrorCode::kInvalid, "etcdserver: too many operations in txn request"};
  }
  const bool writes = std::any_of(changes.begin(), changes.end(),
                                  [](const EtcdChange& one) { return one.value.has_value(); });
  if (full && writes) return Error{ErrorCode::kLimit, "etcdserver: mvcc: database space exceeded"};
  for (const EtcdCompare& compare : compares) {
    const auto found = entries_.find(compare.key);
    std::uint64_t revision = 0;
    if (found != entries_.end()) {
      revision = compare.what == EtcdCompare::What::kCreated ? found->second.created
                                                             : found->second.modified;
    }
    if (revision != compare.revision) return EtcdOutcome{false, revision_};
  }
  for (const EtcdChange& change : changes) {
    if (change.lease != 0 && !leases_.contains(change.lease)) {
      return Error{ErrorCode::kNotFound, "etcdserver: requested lease not found"};
    }
  }
  ++revision_;
  for (const EtcdChange& change : changes) {
    lease_of_.erase(change.key);
    if (!change.value) {
      entries_.erase(change.key);
      continue;
    }
    EtcdEntry& entry = entries_[change.key];
    if (entry.created == 0) entry.created = revision_;
    entry = {change.key, *change.value, entry.created, revision_};
    if (change.lease != 0) lease_of_[change.key] = change.lease;
  }
  return EtcdOutcome{true, revision_};
}

Status FakeLink::reach() {
  if (cut || !alive()) return lost();
  etcd_.pass_time();
  return {};
}

void FakeLink::deliver() {
  const std::vector<Late> late = std::move(late_);
  late_.clear();
  for (const Late& one : late) static_cast<void>(etcd_.commit(one.compares, one.changes).ok());
}

Result<EtcdEntries> FakeLink::list(std::string_view prefix) {
  if (Status status = reach(); !status) return status.error();
  if (deaf) return lost();
  EtcdEntries found;
  found.revision = etcd_.revision_;
  for (const auto& [key, entry] : etcd_.entries_) {
    if (key.starts_with(prefix)) found.entries.push_back(entry);
  }
  return found;
}

Result<EtcdOutcome> FakeLink::commit(const std::vector<EtcdCompare>& compares,
                                     const std::vector<EtcdChange>& changes) {
  if (Status status = reach(); !status) return status.error();
  if (slow) {
    late_.push_back({compares, changes});
    return lost();
  }
  const auto outcome = etcd_.commit(compares, changes);
  // The process may die, or the answer be lost, when it is done.
  if (deaf || !alive()) return lost();
  return outcome;
}

Result<EtcdLease> FakeLink::grant(std::uint32_t seconds) {
  if (Status status = reach(); !status) return status.error();
  const std::uint64_t id = ++etcd_.last_lease_;
  etcd_.leases_[id] = {seconds, etcd_.clock_.now() + std::chrono::seconds(seconds)};
  if (deaf) return lost();
  return EtcdLease{id, seconds};
}

Status FakeLink::keep(std::uint64_t lease) {
  if (Status status = reach(); !status) return status.error();
  const auto found = etcd_.leases_.find(lease);
  if (found != etcd_.leases_.end()) {
    found->second.until = etcd_.clock_.now() + std::chrono::seconds(found->second.seconds);
  }
  if (deaf) return lost();
  if (found == etcd_.leases_.end()) return Error{ErrorCode::kNotFound, "the lease has ended"};
  return {};
}

Status FakeLink::revoke(std::uint64_t lease) {
  if (Status status = reach(); !status) return status.error();
  etcd_.drop_lease(lease);
  if (deaf) return lost();
  return {};
}

Status FakeLink::watch(std::string_view, std::uint64_t,
                       const std::function<bool(const std::vector<EtcdEntry>&)>&) {
  return Error{ErrorCode::kUnsupported, "nothing is told here"};
}

}  // namespace flyt::control::testing
