#include "control/cluster/ledger.h"

#include <algorithm>

#include "base/text.h"
#include "base/wall_clock.h"
#include "control/cluster/records.h"

namespace flyt::cluster {
namespace {

constexpr std::size_t kDetailsBytesMax = 2048;
// Of so many VMs it is known how much has been logged of them.
constexpr std::size_t kLimitsMax = 4096;

// Numbers with as many digits as all have, so that keys stand in order.
std::string numbered(std::string_view front, std::uint64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(front) + std::string(20 - digits.size(), '0') + digits;
}

template <class Entry>
std::vector<Entry> after_number(const std::deque<Entry>& entries, std::uint64_t after) {
  const auto first = std::upper_bound(
      entries.begin(), entries.end(), after,
      [](std::uint64_t number, const Entry& one) { return number < one.number(); });
  const auto count =
      std::min<std::ptrdiff_t>(entries.end() - first, std::ptrdiff_t{Ledger::kBatchMax});
  return {first, first + count};
}

}  // namespace

void Batch::put(std::string key, const google::protobuf::Message& value) {
  changes_.push_back({std::move(key), value.SerializeAsString()});
}

void Batch::event(std::string_view kind, std::string_view node, std::string_view vm,
                  std::string_view text) {
  v1::ClusterEvent event;
  // Nodes and VMs have a part in these, and what is no UTF-8 could not be read again.
  event.set_kind(std::string(kind));
  event.set_node(plain_text(node, kTextBytesMax));
  event.set_vm(plain_text(vm, kTextBytesMax));
  event.set_text(plain_text(text, kReasonBytesMax));
  events_.push_back(std::move(event));
}

Status Ledger::start() {
  const auto events = load("events/");
  if (!events) return events.error();
  for (const StoreEntry& entry : *events) {
    v1::ClusterEvent event;
    if (!event.ParseFromString(entry.value)) {
      return Error{ErrorCode::kInvalid, entry.key + " is damaged"};
    }
    last_event_ = event.number();
    events_.push_back(std::move(event));
  }
  const auto audits = load("audit/");
  if (!audits) return audits.error();
  for (const StoreEntry& entry : *audits) {
    v1::AuditEntry one;
    if (!one.ParseFromString(entry.value)) {
      return Error{ErrorCode::kInvalid, entry.key + " is damaged"};
    }
    last_audit_ = one.number();
    audits_.push_back(std::move(one));
  }
  return {};
}

Result<std::vector<StoreEntry>> Ledger::load(std::string_view prefix) {
  auto entries = store_->list(prefix);
  if (!entries) return entries;
  for (const StoreEntry& entry : *entries) revisions_[entry.key] = entry.revision;
  return entries;
}

Status Ledger::write(const std::vector<StoreChange>& changes) {
  std::vector<StoreCondition> conditions;
  for (const StoreChange& change : changes) {
    const auto known = revisions_.find(change.key);
    conditions.push_back({change.key, known == revisions_.end() ? 0 : known->second});
  }
  const auto revision = store_->commit(conditions, changes);
  if (!revision) {
    if (problem_.empty()) log_.error("state not written", {{"why", revision.error().message}});
    problem_ = revision.error().message;
    const bool lost = revision.error().code == ErrorCode::kLost;
    return Error{lost ? ErrorCode::kLost : ErrorCode::kSystem, problem_};
  }
  problem_.clear();
  for (const StoreChange& change : changes) {
    if (change.value) {
      revisions_[change.key] = *revision;
    } else {
      revisions_.erase(change.key);
    }
  }
  return {};
}

Status Ledger::commit(Batch batch) {
  std::uint64_t number = last_event_;
  for (v1::ClusterEvent& event : batch.events_) {
    event.set_number(++number);
    event.set_at_ms(unix_milliseconds());
    batch.put(numbered("events/", number), event);
  }
  const std::size_t kept = events_.size() + batch.events_.size();
  const std::size_t surplus = std::min(
      events_.size(), kept > events_max_ ? kept - static_cast<std::size_t>(events_max_) : 0);
  for (std::size_t i = 0; i < surplus; ++i) batch.remove(numbered("events/", events_[i].number()));
  // What was never written need not go.
  std::erase_if(batch.changes_, [this](const StoreChange& change) {
    return !change.value && !revisions_.contains(change.key);
  });
  if (batch.changes_.empty()) return {};
  if (Status status = write(batch.changes_); !status) return status;
  last_event_ = number;
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(surplus));
  for (v1::ClusterEvent& event : batch.events_) {
    tell(event);
    events_.push_back(std::move(event));
  }
  return {};
}

Ledger::~Ledger() { tell_left_out(); }

void Ledger::tell(const v1::ClusterEvent& event) {
  if (event.vm().empty()) {
    return log_.info(event.kind(), {{"node", event.node()}, {"vm", ""}, {"text", event.text()}});
  }
  // VMs may come and go, too.
  if (lines_.size() >= kLimitsMax && !lines_.contains(event.vm())) tell_left_out();
  LimitedLog(log_, lines_[event.vm()], event.vm())
      .info(event.kind(), {{"node", event.node()}, {"vm", event.vm()}, {"text", event.text()}});
}

void Ledger::tell_left_out() {
  for (auto& [vm, limit] : lines_) LimitedLog(log_, limit, vm).finish();
  lines_.clear();
}

Status Ledger::audit(v1::AuditEntry entry) {
  entry.set_caller(plain_text(entry.caller(), kTextBytesMax));
  entry.set_peer(plain_text(entry.peer(), kTextBytesMax));
  entry.set_subject(plain_text(entry.subject(), kTextBytesMax));
  entry.set_details(plain_text(entry.details(), kDetailsBytesMax));
  entry.set_result(plain_text(entry.result(), kReasonBytesMax));
  entry.set_number(last_audit_ + 1);
  entry.set_at_ms(unix_milliseconds());
  Batch batch;
  batch.put(numbered("audit/", entry.number()), entry);
  const bool full = audits_.size() >= audit_max_;
  if (full) batch.remove(numbered("audit/", audits_.front().number()));
  if (Status status = write(batch.changes_); !status) return status;
  if (full) audits_.pop_front();
  ++last_audit_;
  audits_.push_back(std::move(entry));
  return {};
}

std::vector<v1::ClusterEvent> Ledger::events(std::uint64_t after) const {
  return after_number(events_, after);
}

std::vector<v1::AuditEntry> Ledger::audits(std::uint64_t after) const {
  return after_number(audits_, after);
}

}  // namespace flyt::cluster
