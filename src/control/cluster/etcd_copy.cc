#include "control/cluster/etcd_copy.h"

#include <algorithm>

#include "control/cluster/etcd_store.h"

namespace flyt::cluster {
namespace {

constexpr Duration kRest = std::chrono::milliseconds(500);

class Snapshot final : public Store {
 public:
  explicit Snapshot(std::map<std::string, StoreEntry, std::less<>> entries)
      : entries_(std::move(entries)) {}

  Result<std::vector<StoreEntry>> list(std::string_view prefix) override {
    std::vector<StoreEntry> found;
    for (auto one = entries_.lower_bound(prefix);
         one != entries_.end() && one->first.starts_with(prefix); ++one) {
      found.push_back(one->second);
    }
    return found;
  }
  Result<std::uint64_t> commit(std::span<const StoreCondition>,
                               std::span<const StoreChange>) override {
    return Error{ErrorCode::kLost, "no cluster manager that can be reached decides now"};
  }
  bool mine() const override { return false; }

 private:
  const std::map<std::string, StoreEntry, std::less<>> entries_;
};

}  // namespace

EtcdCopy::EtcdCopy(control::Etcd& etcd, std::string prefix, std::function<void()> vacant)
    : etcd_(etcd),
      prefix_(std::move(prefix)),
      vacant_(std::move(vacant)),
      thread_([this] { run(); }) {}

EtcdCopy::~EtcdCopy() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  etcd_.stop();
  thread_.join();
}

bool EtcdCopy::stopping() {
  const Lock lock(mutex_);
  return stopping_;
}

std::uint64_t EtcdCopy::revision() {
  const Lock lock(mutex_);
  return revision_;
}

std::unique_ptr<Store> EtcdCopy::store() {
  const Lock lock(mutex_);
  return std::make_unique<Snapshot>(entries_);
}

void EtcdCopy::run() {
  while (!stopping()) {
    // Whatever ended it, what there is is read again.
    static_cast<void>(follow().ok());
    std::unique_lock<Mutex> lock(mutex_);
    static_cast<void>(changed_.wait_for(lock, kRest, [this] { return stopping_; }));
  }
}

Status EtcdCopy::follow() {
  const std::string front = prefix_ + std::string(kEtcdState);
  const auto all = etcd_.list(front);
  if (!all) return all.error();
  {
    const Lock lock(mutex_);
    entries_.clear();
    for (const control::EtcdEntry& entry : all->entries) {
      const std::string key = entry.key.substr(front.size());
      entries_[key] = {key, entry.value, entry.modified};
    }
    revision_ = std::max(revision_ + 1, all->revision);
  }
  return etcd_.watch(prefix_, all->revision, [this](const auto& changes) { return take(changes); });
}

bool EtcdCopy::take(const std::vector<control::EtcdEntry>& changes) {
  const std::string front = prefix_ + std::string(kEtcdState);
  const std::string leader = prefix_ + std::string(kEtcdLeader);
  bool vacant = false;
  {
    const Lock lock(mutex_);
    for (const control::EtcdEntry& change : changes) {
      if (change.key == leader) vacant = change.created == 0;
      if (!change.key.starts_with(front)) continue;
      const std::string key = change.key.substr(front.size());
      if (change.created == 0) {
        entries_.erase(key);
      } else {
        entries_[key] = {key, change.value, change.modified};
      }
      revision_ = std::max(revision_ + 1, change.modified);
    }
  }
  if (vacant) vacant_();
  return !stopping();
}

}  // namespace flyt::cluster
