// EtcdCopy: the cluster's state as etcd tells it, for managers that do not decide.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/annotations.h"
#include "control/cluster/store.h"
#include "control/etcd/etcd.h"

namespace flyt::cluster {

// Reads all of it, and then hears of each change, from its making to its end.
class EtcdCopy {
 public:
  // `vacant` is called, by a thread of its own, when nobody has the leader's key any more.
  EtcdCopy(control::Etcd& etcd, std::string prefix, std::function<void()> vacant);
  // Ends all watches of its etcd.
  ~EtcdCopy();
  EtcdCopy(const EtcdCopy&) = delete;
  EtcdCopy& operator=(const EtcdCopy&) = delete;

  // Grows with each change; 0: nothing was read yet.
  std::uint64_t revision();
  // As it is now; nothing can be written there.
  std::unique_ptr<Store> store();

 private:
  using Entries = std::map<std::string, StoreEntry, std::less<>>;
  void run();
  Status follow();
  bool take(const std::vector<control::EtcdEntry>& changes);
  bool stopping();

  control::Etcd& etcd_;
  const std::string prefix_;
  const std::function<void()> vacant_;
  Mutex mutex_;
  Condition changed_;
  Entries entries_ GUARDED_BY(mutex_);
  std::uint64_t revision_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  // lint: allow(threads): it waits for etcd, which no simulator orders.
  std::thread thread_;
};

}  // namespace flyt::cluster
