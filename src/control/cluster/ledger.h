// Ledger: a store as its one writer sees it, and what happened: events, and who did what.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/log_limit.h"
#include "base/result.h"
#include "control/cluster.pb.h"
#include "control/cluster/store.h"

namespace flyt::cluster {

// What is to change together, and how it is told.
class Batch {
 public:
  void put(std::string key, const google::protobuf::Message& value);
  void remove(std::string key) { changes_.push_back({std::move(key), std::nullopt}); }
  void event(std::string_view kind, std::string_view node, std::string_view vm,
             std::string_view text);

 private:
  friend class Ledger;
  std::vector<StoreChange> changes_;
  std::vector<v1::ClusterEvent> events_;
};

// Not thread-safe.
class Ledger {
 public:
  Ledger(std::unique_ptr<Store> store, const Log& log, std::uint64_t events_max,
         std::uint64_t audit_max)
      : store_(std::move(store)), log_(log), events_max_(events_max), audit_max_(audit_max) {}
  ~Ledger();

  // Reads events and audit.
  Status start();
  Result<std::vector<StoreEntry>> load(std::string_view prefix);
  // All of it is on disk, and its events are told; or nothing has changed. Fails, too, if somebody
  // else has changed one of the keys since it was read or written here.
  Status commit(Batch batch);
  // What callers wrote of it is cut where it is too long.
  Status audit(v1::AuditEntry entry);

  // Those after `number`, at most kBatchMax.
  std::vector<v1::ClusterEvent> events(std::uint64_t after) const;
  std::vector<v1::AuditEntry> audits(std::uint64_t after) const;
  // Why the last commit failed; empty: it did not.
  const std::string& problem() const { return problem_; }
  // False: somebody else may decide now.
  bool mine() const { return store_->mine(); }
  // Of one commit, at best.
  std::size_t changes_at_once() const { return store_->changes_at_once(); }

  static constexpr std::size_t kBatchMax = 1000;

 private:
  Status write(const std::vector<StoreChange>& changes);
  // In the log. A VM may ask for its GPU and give it back as often as it likes: of each so many
  // lines are written, and the number of the others.
  void tell(const v1::ClusterEvent& event);
  void tell_left_out();

  const std::unique_ptr<Store> store_;
  const Log log_;
  const std::uint64_t events_max_;
  const std::uint64_t audit_max_;
  std::map<std::string, std::uint64_t, std::less<>> revisions_;
  std::deque<v1::ClusterEvent> events_;
  std::deque<v1::AuditEntry> audits_;
  std::uint64_t last_event_ = 0;
  std::uint64_t last_audit_ = 0;
  std::string problem_;
  std::map<std::string, LogLimit, std::less<>> lines_;  // By VM.
};

}  // namespace flyt::cluster
